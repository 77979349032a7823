import { randomBytes } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect } from '@jest/globals'
import { applicationsOf } from '../support/clients/applications.ts'
import { docker } from '../support/containers.ts'
import { eventually } from '../support/eventually.ts'
import { testLong } from '../support/long-tests.ts'
import { isLong } from '../support/long.ts'
import { freePort } from '../../script/lib/free-port.ts'
import { type OwnApi, startOwnApi } from '../support/own-api.ts'
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell } from '../support/paste.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { openTlsProxy, type TlsProxy } from '../support/tls-proxy.ts'
import { visit } from '../support/visits.ts'

// What docs/deploy-servers.md says of sending files and images, pasted as it is printed: to the API, and to one behind a
// proxy that ends TLS (docs/operators.md). Only the folder for temporary files is another.

const blocksBelow = async (heading: string): Promise<string[]> => {
  const [, rest = ''] = (await pageOf('deploy-servers')).split(new RegExp(`^#+ ${heading}$`, 'm'))
  return blocksOf(rest.split(/^#+ /m)[0] ?? '').map((block) => block.replaceAll('/tmp/', `${tmpdir()}/`))
}

interface Way {
  url: string
  /** What clients trust. */
  caFile?: string
  close(): Promise<unknown>
}

const direct = async (): Promise<Way> => ({ url: facts().api_url, close: async () => {} })

async function throughProxy(): Promise<Way> {
  const port = await freePort()
  const url = `https://127.0.0.1:${port}`
  const api: OwnApi = await startOwnApi({
    KEELSON_API_URL: url,
    KEELSON_TRUSTED_PROXIES: '127.0.0.1',
    KEELSON_RATE_PER_SEC: '100000',
  })
  const proxy: TlsProxy = await openTlsProxy(port, Number(new URL(api.url).port))
  return { url, caFile: proxy.caFile, close: () => Promise.all([proxy.close(), api.stop()]) }
}

describe.each([
  ['to the API', direct],
  ['through a proxy with TLS', throughProxy],
])('%s', (_, open) => {
  let way: Way
  let tenant: TestTenant
  let home: string
  let shell: ReturnType<typeof openShell>
  let deploy: string
  beforeAll(async () => {
    if (!isLong) return
    tenant = await makeTenant()
    const server = await tenant.owner.deployServers.make()
    deploy = server.id
    way = await open()
    home = await mkdtemp(join(tmpdir(), 'home-'))
    shell = openShell({
      API: way.url,
      TOKEN: tenant.owner.token,
      DEPLOY: deploy,
      HOME: home, // where docker keeps its login
      DOCKER_HOST: facts().docker_host,
      ...(way.caFile ? { CURL_CA_BUNDLE: way.caFile } : {}),
    })
    const [helpers = ''] = blocksOf(await pageOf('vpcs'))
    await shell.paste(helpers.slice(0, helpers.indexOf('\n\n')))
    await shell.paste('cd "$HOME" && mkdir shop && echo hello >shop/index.html')
  })
  afterAll(async () => {
    await shell?.close()
    await way?.close()
    if (home) await rm(home, { recursive: true })
  })

  testLong('an archive is sent in the request', async () => {
    const blocks = await blocksBelow('Artifacts')
    expect(blocks).toHaveLength(1)
    await shell.paste(blocks[0] ?? '')
    const artifact = (await shell.paste('echo $FILES')).trim()
    await eventually(async () => (await apps().artifact(artifact))['status'] === 'ready')
  })

  testLong('a large archive is sent in parts', async () => {
    const blocks = await blocksBelow('Large archives')
    expect(blocks).toHaveLength(1)
    await shell.paste(blocks[0] ?? '')
    const url = (await shell.paste('echo $URL')).trim()
    expect(url.startsWith(`${way.url}/`)).toBe(true)
    const artifact = /\/uploads\/([^?]+)/.exec(url)?.[1] ?? ''
    await eventually(async () => (await apps().artifact(artifact))['status'] === 'ready')
    expect((await apps().artifact(artifact))['unpacked_bytes']).toBeGreaterThan(30_000_000)
  })

  testLong('an image is pushed, and deployed', async () => {
    const greeting = randomBytes(8).toString('hex')
    await makeShop(greeting)
    const blocks = await blocksBelow('Pushing images')
    expect(blocks).toHaveLength(1)
    const said = await shell.paste((blocks[0] ?? '').replace('IMAGE=nginx:1.29', 'IMAGE=shop:v2'))
    expect(said).toContain('Login Succeeded')
    expect(said).toMatch(/v2: digest: sha256:/)
    const registry = (await shell.paste('echo $REGISTRY')).trim()
    expect(registry).toBe(`${new URL(way.url).host}/${deploy.slice(-12)}`)
    const begun = await shell.paste(
      `curl -s -X POST -D - "$API/v2/\${REGISTRY#*/}/shop/blobs/uploads/" -u "token:$(echo "$CREDENTIALS" | sed 's/.*"api_token":"\\([^"]*\\)".*/\\1/')"`,
    )
    const location = /^location: (\S+)/im.exec(begun)?.[1] ?? ''
    expect(new URL(location, way.url).origin).toBe(way.url)
    const [app] = (
      await tenant.owner.get<{ items: { id: string; url: string }[] }>(
        `/api/v1/deploy-servers/${deploy}/applications?name=pushed`,
      )
    ).items
    await eventually(async () => (await apps().get(app?.id ?? '')).status === 'running')
    expect((await visit(app?.url ?? '')).text).toBe(greeting)
    await docker.getImage(`${registry}/shop:v2`).remove()
  })

  const apps = () => applicationsOf(tenant.owner, deploy)
})

/** The image `shop:v2` of the reader. */
async function makeShop(answer: string): Promise<void> {
  const container = await docker.createContainer({
    Image: 'busybox:latest',
    Cmd: ['sh', '-c', `mkdir /site; echo "${answer}" >/site/index.html`],
  })
  await container.start()
  await container.wait()
  const changes = [`CMD ${JSON.stringify(['sh', '-c', 'exec httpd -f -p "$PORT" -h /site'])}`]
  await container.commit({ repo: 'shop', tag: 'v2', changes })
  await container.remove()
}
