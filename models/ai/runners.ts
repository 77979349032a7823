import { exportJWK, generateKeyPair } from 'jose'
import mongoose, { Schema } from 'mongoose'
import { PublicKey } from '../../lib/host-protocol.ts'
import { RunnerKey, type RunnerSpec } from '../../lib/runner-protocol.ts'
import { readOne } from '../read-one.ts'
import { idField } from '../resources.ts'
import { schemaOptions } from '../schemas.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { planOf, specOf, versionNumbered } from './versions.ts'

/**
 * The identity of a runner: who it is to the gateway and the internal API, and what it carries out. It is good for as long as
 * the record is there.
 */
export interface RunnerDocument {
  _id: string
  tenant_id: string
  workflow_id: string
  version: number
  public_key: PublicKey
  /** `RunnerKey`. The platform makes it, and gives it to the runner's container alone. */
  key_sealed: string
  created_at: Date
}

const schema = new Schema<RunnerDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    workflow_id: { type: String, required: true },
    version: { type: Number, required: true },
    public_key: { type: Schema.Types.Mixed, required: true },
    key_sealed: { type: String, required: true },
  },
  { ...schemaOptions, timestamps: { createdAt: 'created_at', updatedAt: false }, collection: 'ai_runners' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, workflow_id: 1 })
export const Runner = mongoose.model<RunnerDocument>('AiRunner', schema)

const contextOf = (runnerId: string): string => `ai_runners.key:${runnerId}`
sealedField(Runner, 'key_sealed', ({ _id }) => contextOf(_id))

/** Makes a runner with a key of its own. */
export async function createRunner(
  fields: Pick<RunnerDocument, '_id' | 'tenant_id' | 'workflow_id' | 'version'>,
): Promise<RunnerDocument> {
  const { privateKey } = await generateKeyPair('EdDSA', { crv: 'Ed25519', extractable: true })
  const { kty, crv, x, d } = await exportJWK(privateKey)
  const key = RunnerKey.parse({ kty, crv, x, d })
  const made = new Runner({
    ...fields,
    public_key: PublicKey.parse({ kty, crv, x }),
    key_sealed: await sealSecret(key, contextOf(fields._id)),
  })
  return (await made.save()).toObject()
}

/** From now on the runner gets no work, and is refused everywhere. Succeeds if there is none. */
export async function removeRunner(tenant_id: string, _id: string): Promise<void> {
  await Runner.deleteOne({ _id, tenant_id })
}

/** Finds a runner of any tenant by its id, for each of its requests. */
export const runnerOf = (_id: string): Promise<RunnerDocument | null> => readOne(Runner, '_id', _id)

/** The settings of a runner's program that name it and have its key. */
export async function runnerVars(tenant_id: string, _id: string): Promise<Record<string, string>> {
  const runner = await Runner.findOne({ _id, tenant_id }).lean()
  if (!runner) return {}
  const key = await unsealSecret<RunnerKey>(runner.key_sealed, contextOf(_id))
  return { KEELSON_RUNNER_ID: _id, KEELSON_RUNNER_KEY: JSON.stringify(key) }
}

/** What the runner carries out. Throws NotFound. */
export async function runnerSpecOf(runner: {
  tenant_id: string
  workflow_id: string
  version: number
}): Promise<RunnerSpec> {
  const { tenant_id, workflow_id } = runner
  const version = await versionNumbered({ _id: workflow_id, tenant_id }, runner.version)
  return {
    workflow_id,
    version: version.version,
    spec_sha256: version.spec_sha256,
    spec: specOf(version),
    plan: { ...planOf(version) },
  }
}
