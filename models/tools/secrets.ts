import { hintOf } from '../../lib/secret-hints.ts'
import { freshKeys, MasterKeyMissing } from '../data-keys.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type ToolDocument, sealContext } from './tools.ts'

/** What a tool seals: the secret of its auth, and the variables of its command. */
export interface ToolSecret {
  secret: string | null
  env: Record<string, string>
}

type Of = Pick<ToolDocument, '_id' | 'tenant_id'>
const none: ToolSecret = { secret: null, env: {} }

const isEmpty = ({ secret, env }: ToolSecret): boolean => secret === null && Object.keys(env).length === 0

/** The fields of a tool that follow from its secret. */
export const sealed = async (
  of: Of,
  secret: ToolSecret,
): Promise<Pick<ToolDocument, 'secret_sealed' | 'secret_hint' | 'env_names'>> => ({
  secret_sealed: isEmpty(secret) ? '-' : await sealSecret(secret, sealContext(of)),
  secret_hint: secret.secret === null ? null : hintOf(secret.secret),
  env_names: Object.keys(secret.env).toSorted(),
})

export const opened = async (tool: Of & Pick<ToolDocument, 'secret_sealed'>): Promise<ToolSecret> =>
  tool.secret_sealed === '-' ? none : unsealSecret<ToolSecret>(tool.secret_sealed, sealContext(tool))

/** Whether secrets can be sealed and opened, tried with one, and the key that seals. */
export async function credentialStorage(): Promise<{ configured: boolean; key_id: string | null }> {
  try {
    const of = { _id: '', tenant_id: '' }
    await unsealSecret(await sealSecret('', sealContext(of)), sealContext(of))
    return { configured: true, key_id: (await freshKeys()).current }
  } catch (error) {
    if (error instanceof MasterKeyMissing) return { configured: false, key_id: null }
    throw error
  }
}
