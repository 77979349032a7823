import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { describeAcme } from '../support/describe-acme.ts'
import '../support/exclusive.ts' // one ACME server in each stack
import { blocksOf, pageOf } from '../../script/lib/pages.ts'
import { openShell } from '../support/paste.ts'
import { openPebble, type Pebble } from '../support/pebble.ts'
import { facts } from '../support/stack.ts'
import { makeTenant } from '../support/tenants.ts'

// The examples of docs/load-balancers.md, pasted one after another.

let shell: ReturnType<typeof openShell>
let blocks: string[]
beforeAll(async () => {
  const { owner } = await makeTenant()
  shell = openShell({ API: facts().api_url, TOKEN: owner.token })
  const [network = ''] = blocksOf(await pageOf('vpcs'))
  expect(await shell.paste(network)).toMatch(/succeeded\s+succeeded/)
  blocks = blocksOf(await pageOf('load-balancers'))
  expect(blocks).toHaveLength(4)
})
afterAll(() => shell.close())

const endpoint = async (): Promise<{ address: string; port: number }> => {
  const [address = '', port] = (await shell.paste('echo $AT')).trim().split(':')
  return { address, port: Number(port) }
}

test('a load balancer is made, and serves', async () => {
  await shell.paste(blocks[0] ?? '')
  // A target is healthy after two checks.
  const served = await shell.paste('until curl -sf http://$AT/; do sleep 0.3; done')
  expect(served).toContain('Hello')
})

test('its log and its metrics tell of the request', async () => {
  const { address } = await endpoint()
  await shell.paste(`until ${(blocks[2] ?? '').trim()} | grep '"status":200'; do sleep 0.3; done`)
  const [entry] = (await shell.paste(blocks[2] ?? '')).trim().split('\n')
  expect(JSON.parse(entry ?? '')).toMatchObject({ host: address, method: 'GET', path: '/', status: 200 })
  const metrics = await shell.paste(blocks[3] ?? '')
  expect(metrics).toContain('"name":"requests"')
  expect(metrics).toContain('"name":"latency_p99"')
})

describeAcme('with an authority', () => {
  let pebble: Pebble
  beforeAll(async () => {
    const { address, port } = await endpoint()
    pebble = await openPebble(address, port)
  })
  afterAll(() => pebble.close())

  test('a certificate is ordered, used and renewed', async () => {
    // Ports 80 and 443 of the machine are not the tests' own.
    const { address, port } = await endpoint()
    const block = (blocks[1] ?? '')
      .replace(/(host_port\\?":)80/g, `$1${port}`)
      .replace(String.raw`\"host_port\":443,`, '')
    const words = (await shell.paste(block)).split('\n')
    expect(words.map((line) => line.trim()).filter(Boolean)).toEqual([
      'succeeded',
      '"status":"available"',
      'succeeded',
      'succeeded',
    ])
    const secure = `api GET /load-balancers/$LB | sed 's/.*"port":443,[^}]*"host_port":\\([0-9]*\\).*/\\1/'`
    await shell.paste(`SECURE=$(${secure})`)
    const name = 'shop.example.com'
    const asked = `curl -sk --resolve ${name}:$SECURE:${address} https://${name}:$SECURE/`
    expect(await shell.paste(asked)).toContain('Hello')
  })
})
