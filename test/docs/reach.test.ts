import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { ConnectorLogin } from '../../models/connectors/logins.ts'
import { issueToken } from '../../models/llm/tokens.ts'
import { asRoot } from '../support/as-root.ts'
import '../support/exclusive.ts' // one server of each provider in each stack
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openReaderShell, refusalsIn } from '../support/paste.ts'
import { logIn } from '../support/providers/browser-login.ts'
import { startGithub, startGitlab } from '../support/providers/git-hosts.ts'
import { knowProviders } from '../support/providers/known.ts'
import { startModelVendors } from '../support/providers/model-vendors.ts'
import { layout } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// The examples of the pages about what is outside: providers, models and tools. Keys and addresses are those of the tests’ servers,
// which stand where the providers do (test/support/providers/).

let tenant: TestTenant
let shell: Awaited<ReturnType<typeof openReaderShell>>
beforeAll(async () => {
  tenant = await makeTenant()
  shell = await openReaderShell(tenant.owner.token)
})
afterAll(() => shell?.close())

describe('docs/connectors.md', () => {
  let vendors: Awaited<ReturnType<typeof startModelVendors>>
  let github: Awaited<ReturnType<typeof startGithub>>
  let gitlab: Awaited<ReturnType<typeof startGitlab>>
  let blocks: string[]
  beforeAll(async () => {
    knowProviders()
    vendors = await startModelVendors()
    github = await startGithub()
    gitlab = await startGitlab()
    blocks = blocksOf(await pageOf('connectors'))
    expect(blocks).toHaveLength(3)
  })
  afterAll(async () => {
    for (const server of [vendors, github, gitlab]) await server?.close()
  })

  test('keys', async () => {
    const [keys = ''] = blocks
    vendors.accept('key-of-the-vendor')
    const said = await shell.paste(
      keys
        .replaceAll(/sk-ant-…|(?<="api_key":")…/g, 'key-of-the-vendor')
        .replace('https://models.example.com/v1', `${vendors.url}/own`),
    )
    expect(refusalsIn(said)).toEqual([])
    expect(JSON.parse(said.slice(said.lastIndexOf('{"items"')))).toMatchObject({
      items: [{ provider: 'anthropic', is_default: true, status: 'active' }],
    })
  })

  test('a login by device', async () => {
    const [begun = '', polled = ''] = (blocks[1] ?? '').split(/(?<=\n)(?=api )/)
    await shell.paste(begun)
    const login = JSON.parse(await shell.paste('echo "$LOGIN"')) as { login_id: string; user_code: string }
    await github.approve(login.user_code, 'ada')
    // As if the pause that the provider asks for were over.
    const due = { $set: { next_poll_at: new Date() } }
    await ConnectorLogin.updateOne({ _id: login.login_id, tenant_id: tenant.id }, due)
    expect(JSON.parse(await shell.paste(polled))).toMatchObject({
      status: 'done',
      connector: { provider: 'github', account: { login: 'ada' } },
    })
  })

  test('a login in the browser', async () => {
    const [begun = '', completed = ''] = (blocks[2] ?? '').split(/(?<=\n)(?=api )/)
    const { authorize_url } = JSON.parse(await shell.paste(begun)) as { authorize_url: string }
    const url = await logIn(authorize_url)
    expect(JSON.parse(await shell.paste(completed.replace('…', url)))).toMatchObject({
      provider: 'gitlab',
      account: { login: 'ada' },
    })
  })
})

test('docs/model-gateway.md: the platform’s own model by the API of OpenAI, and the usage', async () => {
  const [base = '', usage = '', ...rest] = blocksOf(await pageOf('model-gateway'))
  expect(rest).toEqual([])
  const purpose = { kind: 'collection' as const, id: newId() }
  const grant = { tenant_id: tenant.id, purpose, connector_id: null, fallbacks: [] }
  const { token } = await issueToken(grant, null)
  const own = await openReaderShell(token)
  await own.paste(base.replaceAll(/http:\/\/127\.0\.0\.1:7092/g, `http://127.0.0.1:${layout.modelsPort}`))
  const asked = 'curl -s "$OPENAI_BASE_URL/models" -H "authorization: Bearer $OPENAI_API_KEY"'
  expect(await own.paste(asked)).toContain('all-MiniLM-L6-v2-int8')
  // The token is taken, and the refusal has the form of Anthropic’s API.
  const other = 'curl -s "$ANTHROPIC_BASE_URL/v1/messages" -H "x-api-key: $ANTHROPIC_API_KEY" -d "{}"'
  expect(JSON.parse(await own.paste(other))).toEqual({
    type: 'error',
    error: { type: 'invalid_request_error', message: 'The body names no model' },
  })
  await own.close()
  expect(JSON.parse(await shell.paste(usage))).toMatchObject({
    usage: [{ provider: 'keelson', calls: 1 }],
  })
})

asRoot('docs/tools.md', () => {
  test('an MCP server that does not answer is told by the step that failed, and a command has its microVM', async () => {
    const [docs = '', files = '', ...rest] = blocksOf(await pageOf('tools'))
    expect(rest).toEqual([])
    const { id } = await makeSubnet(tenant, (await makeVpc(tenant)).id)
    const own = await openReaderShell(tenant.owner.token, { SUBNET: id })
    const told = await own.paste(docs)
    // Nobody has these names: the probe says at which step it ended.
    expect(told).toMatch(/"stage":"\w+"/)
    expect(told).not.toMatch(/"code":"(invalid_input|not_found|invalid_json)"/)
    expect(JSON.parse(await own.paste(files))).toMatchObject({
      kind: 'mcp',
      transport: 'stdio',
      subnet_id: id,
    })
    await own.close()
  })
})
