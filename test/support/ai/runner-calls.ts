import { importJWK } from 'jose'
import { type Credential, requestToken } from '../../../lib/party-tokens.ts'
import { RunnerKey } from '../../../lib/runner-protocol.ts'
import { type RunnerDocument, runnerVars } from '../../../models/ai/runners.ts'
import { facts } from '../stack.ts'

async function credentialOf({ _id: id, tenant_id }: RunnerDocument): Promise<Credential> {
  const { KEELSON_RUNNER_KEY: key = '' } = await runnerVars(tenant_id, id)
  return { party: { kind: 'runner', id }, key: await importJWK(RunnerKey.parse(JSON.parse(key)), 'EdDSA') }
}

/** A runner that asks the internal API by hand. Paths begin with the id of a run. */
export async function asking(runner: RunnerDocument) {
  const credential = await credentialOf(runner)
  return async (method: string, path: string, body?: object) => {
    const target = `/internal/v1/runners/${runner._id}/runs/${path}`
    const answer = await fetch(new URL(target, facts().api_url), {
      method,
      headers: {
        authorization: `Bearer ${await requestToken(credential, { method, target })}`,
        ...(body ? { 'content-type': 'application/json' } : {}),
      },
      ...(body ? { body: JSON.stringify(body) } : {}),
    })
    const text = await answer.text()
    return { status: answer.status, body: (text ? JSON.parse(text) : {}) as Record<string, unknown> }
  }
}

/** How an attempt ends a node with this output. */
export const succeeded = (output: unknown, chosen: string | null = null) => ({
  status: 'succeeded',
  case: chosen,
  output: JSON.stringify(output),
})
