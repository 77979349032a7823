import http from 'node:http'
import { type Row, quantile, timed } from './measure.ts'
import type { Stack } from './stack.ts'

const rounds = 5
const perRound = 400
const tokenLanes = 10
const tokensPerRound = 500

// An unknown parameter: every route gives the same refusal, after authentication if it needs any.
const refused = '?unknown=1'

/**
 * The cost of authentication for a request that is then refused alike: a public route, a session and an access token in
 * turns, one request at a time. Also the number of tokens issued in a second.
 */
export async function identity(stack: Stack): Promise<Row[]> {
  const machine = { name: 'bench-identity', scopes: ['api_clients:read'] }
  const { body } = await stack.request<{ id: string; client_id: string; client_secret: string }>(
    'POST',
    '/api/v1/api-clients',
    machine,
  )
  const agent = new http.Agent({ keepAlive: true, maxSockets: tokenLanes })
  const send = (
    path: string,
    headers: Record<string, string>,
    form?: string,
    status = 200,
  ): Promise<string> =>
    new Promise((resolve, reject) => {
      const asking = http.request(
        stack.api + path,
        { agent, headers, method: form ? 'POST' : 'GET' },
        (answer) => {
          const chunks: Buffer[] = []
          answer.on('data', (chunk: Buffer) => chunks.push(chunk))
          answer.on('end', () => {
            const said = Buffer.concat(chunks).toString()
            if (answer.statusCode === status) resolve(said)
            else reject(new Error(`${path}: ${answer.statusCode} ${said}`))
          })
        },
      )
      asking.on('error', reject)
      asking.end(form)
    })
  const basic = Buffer.from(`${body.client_id}:${body.client_secret}`).toString('base64')
  const issue = async (): Promise<string> => {
    const headers = { authorization: `Basic ${basic}`, 'content-type': 'application/x-www-form-urlencoded' }
    const said = await send('/oauth/token', headers, 'grant_type=client_credentials')
    return (JSON.parse(said) as { access_token: string }).access_token
  }

  const access = { authorization: `Bearer ${await issue()}` }
  const open = `/.well-known/oauth-authorization-server${refused}`
  const guarded = `/api/v1/api-clients/scopes${refused}`
  const refusal = (path: string, headers: Record<string, string>) => send(path, headers, undefined, 400)
  const p50 = { none: [] as number[], session: [] as number[], access: [] as number[] }
  const perSec: number[] = []
  for (let round = 0; round <= rounds; round++) {
    const took = { none: [] as number[], session: [] as number[], access: [] as number[] }
    for (let turn = 0; turn < perRound; turn++) {
      took.none.push(await timed(() => refusal(open, {})))
      took.session.push(await timed(() => refusal(guarded, stack.headers)))
      took.access.push(await timed(() => refusal(guarded, access)))
    }
    const lane = async () => {
      for (let turn = 0; turn < tokensPerRound / tokenLanes; turn++) await issue()
    }
    const ms = await timed(() => Promise.all(Array.from({ length: tokenLanes }, lane)))
    if (round === 0) continue // warm-up
    perSec.push((tokensPerRound / ms) * 1000)
    for (const way of ['none', 'session', 'access'] as const) p50[way].push(quantile(took[way], 0.5))
  }
  agent.destroy()
  await stack.request('DELETE', `/api/v1/api-clients/${body.id}`)
  const over = (figures: number[]): number[] =>
    figures.map((figure, round) => figure - (p50.none[round] ?? Number.NaN))
  return [
    { what: 'tokens issued, 10 at a time', unit: '1/s', figures: perSec },
    { what: 'a request without authentication, p50', unit: 'ms', figures: p50.none },
    { what: 'authentication by session adds, p50', unit: 'ms', figures: over(p50.session), note: '≤ 0.4' },
    {
      what: 'authentication by access token adds, p50',
      unit: 'ms',
      figures: over(p50.access),
      note: '≤ 0.4',
    },
  ]
}
