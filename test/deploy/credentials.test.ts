import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { loadAppImages } from '../support/app-images.ts'
import { type OpenPage, openBrowser } from '../support/browser.ts'
import { Client, type DeployServerBody, type Json } from '../support/client.ts'
import { type ApplicationBody, applicationsOf } from '../support/clients/applications.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { rootLogin } from '../support/clients/deploy-servers.ts'
import { servicesOf } from '../support/clients/services.ts'
import { composed } from '../support/composed.ts'
import { makeDatabaseImages } from '../support/database-images.ts'
import { makeMachine, replicas, tokenOf } from '../support/api-clients.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { visit } from '../support/visits.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// A deploy server's own credentials, and the dashboard. test/api/isolation.test.ts walks what they can do and what not.

let tenant: TestTenant
let server: DeployServerBody
let path: string

const servers = () => tenant.owner.deployServers
const ask = (token: string, method = 'GET', url = path) => new Client(token).ask(method, url)
const tokenWith = async (...scopes: string[]) => tokenOf(await makeMachine(tenant.owner, scopes))
const actions = async (filter: string) =>
  (await tenant.owner.get<{ items: Json[] }>(`/api/v1/audit-events?limit=100&${filter}`)).items.map(
    ({ action, actor_name, status }) => [action, actor_name, status],
  )
/** Logs in with the present credentials. */
async function logIn(): Promise<string> {
  const { root_login, root_password } = await servers().credentials(server.id)
  return String((await rootLogin(server.id, root_login, root_password)).body['token'])
}

beforeAll(async () => {
  tenant = await makeTenant()
  const { id, operation } = await servers().create()
  path = `/api/v1/deploy-servers/${id}`
  for (const [method, url] of [
    ['GET', `${path}/credentials`],
    ['POST', `${path}/credentials/rotate`],
  ] as const)
    expect(await tenant.owner.ask(method, url)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict', detail: expect.stringContaining('creating') },
    })
  await operation.success()
  server = await servers().get(id)
})

describe('the credentials of a deploy server', () => {
  test('are its addresses, a root login, an API token and its worker, the same on each read', async () => {
    const credentials = await servers().credentials(server.id)
    expect(credentials).toMatchObject({
      dashboard_url: expect.stringMatching(new RegExp(`/deploy/${server.id}$`)),
      api_base_url: expect.stringMatching(new RegExp(`${path}$`)),
      root_login: `root@${server.id.slice(-12)}`,
      root_password: expect.stringMatching(/^kdp_/),
      api_token: expect.stringMatching(/^kdt_/),
      worker_id: server.workers[0]?.machine_id,
    })
    expect(await servers().credentials(server.id)).toEqual(credentials)
    expect(await tenant.containers.get(credentials.worker_id)).toMatchObject({ name: 'w1' })
    const headers = { authorization: `Bearer ${credentials.api_token}` }
    expect(await (await fetch(`${credentials.api_base_url}/applications`, { headers })).json()).toEqual({
      items: [],
      total: 0,
    })
  })

  test('are read with their own permission only', async () => {
    const token = await tokenWith('deploy_servers:read', 'deploy_servers:manage')
    expect(await ask(token, 'GET', `${path}/credentials`)).toMatchObject({
      status: 403,
      body: { permission: 'deploy_servers:credentials' },
    })
    const reader = await tokenWith('deploy_servers:credentials')
    expect(await ask(reader, 'GET', `${path}/credentials`)).toMatchObject({ status: 200 })
  })

  test('begin operations that they can follow and cancel, and no others', async () => {
    const token = await logIn()
    const apps = applicationsOf(new Client(token), server.id)
    const { operation } = await apps.create({ image: 'none' })
    expect(await operation.end()).toMatchObject({ state: 'failed', requested_by: server.id })
    const { items } = await tenant.owner.get<{ items: { id: string }[] }>(
      `/api/v1/operations?resource_id=${server.id}`,
    )
    const creation = `/api/v1/operations/${items[0]?.id}`
    expect(await ask(token, 'GET', creation)).toMatchObject({ status: 404 })
    expect(await ask(token, 'POST', `${creation}/cancel`)).toMatchObject({ status: 404 })
  })

  test('are named in audit events: their reads, logins, and what was done with them', async () => {
    const { api_token } = await servers().credentials(server.id)
    await logIn()
    await rootLogin(server.id, 'root', 'wrong')
    await ask(api_token, 'POST', `${path}/applications/${newId()}/stop`)
    const name = server.id.slice(-12)
    const own = '/api/v1/deploy-servers/{id}'
    // The event of a refused login is stored after the answer.
    const byServer = await eventually(async () => {
      const found = await actions('actor_kind=deploy_server')
      return found.some(([, , status]) => status === 401) && found
    })
    expect(byServer).toContainEqual([`POST ${own}/login`, `root@${name}`, 200])
    expect(byServer).toContainEqual([`POST ${own}/login`, `root@${name}`, 401])
    expect(byServer).toContainEqual([`POST ${own}/applications/{app}/stop`, `token@${name}`, 404])
    expect(await actions(`actor_kind=user&resource_id=${server.id}`)).toContainEqual([
      `GET ${own}/credentials`,
      expect.any(String),
      200,
    ])
  })

  test('end with a logout', async () => {
    const token = await logIn()
    expect(await ask(token)).toMatchObject({ status: 200 })
    expect(await tenant.owner.ask('POST', `${path}/logout`)).toMatchObject({ status: 403 })
    expect(await ask(token, 'POST', `${path}/logout`)).toMatchObject({ status: 204 })
    expect(await ask(token)).toMatchObject({ status: 401 })
  })

  test('are replaced in one call: the former ones and their sessions are refused at once', async () => {
    const session = await logIn()
    const before = await servers().credentials(server.id)
    const { status, body: after } = await tenant.owner.ask('POST', `${path}/credentials/rotate`)
    expect([status, after]).toEqual([200, await servers().credentials(server.id)])
    expect(await ask(session)).toMatchObject({ status: 401 })
    expect(await ask(before.api_token)).toMatchObject({ status: 401 })
    expect(await rootLogin(server.id, before.root_login, before.root_password)).toMatchObject({
      status: 401,
      body: { code: 'invalid_credentials' },
    })
    expect(await ask(String(after['api_token']))).toMatchObject({ status: 200 })
    expect(await ask(await logIn())).toMatchObject({ status: 200 })
  })

  testDrawn('leave no session to a login that races with their rotation on another replica', async () => {
    const [here, there] = replicas()
    let opened = 0
    for (let round = 0; round < 8; round++) {
      const { root_login, root_password } = await servers().credentials(server.id)
      const logins = [here, there, here, there].map((replica) =>
        rootLogin(server.id, root_login, root_password, replica),
      )
      await Promise.race(logins) // the others are under way
      await tenant.owner.ask('POST', `${here}${path}/credentials/rotate`)
      for (const { status, body } of await Promise.all(logins)) {
        if (status !== 200) continue
        opened++
        expect(await ask(String(body['token']))).toMatchObject({ status: 401 })
      }
    }
    expect(opened).toBeGreaterThan(0)
  })

  testDrawn(
    'cannot be guessed: five failed logins lock the root login, until the credentials are rotated',
    async () => {
      await tenant.owner.ask('POST', `${path}/credentials/rotate`) // earlier failures count no more
      const { root_login, root_password } = await servers().credentials(server.id)
      const unknown = await rootLogin(newId(), root_login, root_password)
      const guesses = await Promise.all(
        Array.from({ length: 5 }, (_, index) => rootLogin(server.id, root_login, `wrong ${index}`)),
      )
      for (const { status, body } of guesses)
        expect([status, { ...body, request_id: '' }]).toEqual([401, { ...unknown.body, request_id: '' }])
      const late = await rootLogin(server.id, root_login, root_password)
      expect([late.status, late.headers.get('retry-after')]).toEqual([429, expect.stringMatching(/^\d+$/)])
      await tenant.owner.ask('POST', `${path}/credentials/rotate`)
      expect(await ask(await logIn())).toMatchObject({ status: 200 })
    },
  )
})

describe('the dashboard', () => {
  let app: ApplicationBody
  let browser: OpenPage
  const the = (role: 'button' | 'alert' | 'dialog' | 'log', name?: string) =>
    browser.page.getByRole(role, name === undefined ? {} : { name, exact: true })
  const status = (text: string) => browser.page.locator('#log-status').filter({ hasText: text })

  const hostile = '<img src="x" onerror="window.hasRun = true">'

  /** Waits for the end of the deployment whose log is shown; returns the log. */
  async function watchEnd(): Promise<string> {
    await status('succeeded').waitFor()
    const text = await the('log').innerText()
    await the('button', 'Close').click()
    return text
  }

  beforeAll(async () => {
    await loadAppImages(tenant.owner, server)
    app = await applicationsOf(tenant.owner, server.id).make({ name: 'shop', envs: { GREETING: 'hello' } })
    browser = await openBrowser()
  })
  afterAll(() => browser?.close())

  test('asks for the root login, and says when it is wrong', async () => {
    const { page, faults } = browser
    const { dashboard_url, root_login, root_password } = await servers().credentials(server.id)
    await page.goto(dashboard_url)
    await page.getByLabel('Login').fill(root_login)
    await page.getByLabel('Password').fill('wrong')
    await page.keyboard.press('Enter')
    await the('alert').getByText('The login or the password is wrong').waitFor()
    // The browser itself tells the console of the refusal.
    expect(faults.splice(0)).toEqual([expect.stringContaining('401')])
    await page.getByLabel('Password').fill(root_password)
    await page.keyboard.press('Enter')
    await page.getByRole('heading', { name: 'deploy', exact: true, level: 1 }).waitFor()
  })

  test('shows the applications, deployments and workers', async () => {
    const { page } = browser
    const shop = page
      .getByRole('listitem')
      .filter({ has: page.getByRole('heading', { name: 'shop', exact: true }) })
    expect(await shop.innerText()).toMatch(/shop\s+running\s/)
    expect(await shop.getByRole('link').getAttribute('href')).toBe(app.url)
    await page.getByRole('heading', { name: 'shop #1' }).waitFor()
    await page.getByRole('heading', { name: 'Worker w1' }).waitFor()
  })

  test('shows the databases and services', async () => {
    await makeDatabaseImages('redis')
    const [databases, services] = [databasesOf(tenant.owner, server.id), servicesOf(tenant.owner, server.id)]
    await Promise.all([
      databases.make({ name: 'ledger' }),
      services.make({ name: 'notes', docker_compose: composed() }),
    ])
    const { page } = browser
    for (const [list, name, about] of [
      ['databases', 'ledger', /redis .* · worker w1/],
      ['services', 'notes', /compose · \d containers? · worker w1/],
    ] as const) {
      const shown = page.locator(`#${list}`).getByRole('listitem').filter({ hasText: name })
      await shown.getByText('running', { exact: true }).waitFor()
      expect(await shown.innerText()).toMatch(about)
    }
  })

  async function deploy(tag: string, message = ''): Promise<void> {
    await the('button', 'Deploy shop').click()
    await browser.page.getByLabel('Message').fill(message)
    await browser.page.getByLabel('Image tag').fill(tag)
    await browser.page.keyboard.press('Enter')
  }

  test('shows the log of a deployment while it is written, and cancels the deployment', async () => {
    await deploy('silent')
    await the('log').getByText('waiting until the release serves').waitFor()
    await status('deploying').waitFor()
    await the('button', 'Cancel the deployment').click()
    await the('log').getByText('taking the release back').waitFor()
    await status('cancelled').waitFor()
    await the('button', 'Cancel the deployment').waitFor({ state: 'hidden' })
    await the('button', 'Close').click()
  })

  test('deploys a tag, and shows when it serves', async () => {
    await deploy('v2', hostile)
    expect(await watchEnd()).toContain('waiting until the release serves')
    expect((await visit(app.url)).text).toBe('v2 hello')
  })

  test('shows the HTML of a message as text, and runs no inline script', async () => {
    const { page, faults } = browser
    await page.locator('#deployments').getByText(hostile).waitFor()
    expect(await page.locator('main img').count()).toBe(0)
    const refused = await page.evaluate(
      `(() => {
        try {
          const script = document.createElement('script')
          script.textContent = 'window.hasRun = true'
          document.head.append(script)
        } catch (error) {
          return error.name
        }
      })()`,
    )
    expect(refused).toBe('TypeError')
    expect(await page.evaluate('window.hasRun')).toBeUndefined()
    expect(faults.splice(0)).toEqual([expect.stringContaining('TrustedScript')])
  })

  test('reads the log of a deployment by an operation that ends with the deployment', async () => {
    const { api_token } = await servers().credentials(server.id)
    const apps = applicationsOf(new Client(api_token), server.id)
    const [last] = await apps.deployments(`&app_id=${app.id}&sort_by=number`)
    const { log } = await apps.deployment(last?.id ?? '')
    const read = async (query: string) =>
      String((await ask(api_token, 'GET', `${path}/deployments/${last?.id}/log${query}`)).body['text'])
    const jsonLines = log.map((line) => `${JSON.stringify(line)}\n`)
    expect(await read('')).toBe(jsonLines.join(''))
    expect(await read('?lines=1')).toBe(jsonLines.at(-1))
    const events = jsonLines.map((line, index) => `id: ${log[index]?.time}\ndata: ${line}\n`)
    expect(await read('?follow=true')).toBe(events.join(''))
  })

  test('restarts and stops an application', async () => {
    const { page } = browser
    await the('button', 'Restart shop').click()
    await the('dialog', 'shop #4').waitFor()
    await watchEnd()
    await the('button', 'Stop shop').click()
    await the('dialog', 'Stop shop?').getByRole('button', { name: 'Stop', exact: true }).click()
    await the('dialog', 'shop #5').waitFor()
    await watchEnd()
    await page.locator('#applications').getByText('stopped').waitFor()
    const deployments = await applicationsOf(tenant.owner, server.id).deployments(`&app_id=${app.id}`)
    expect(deployments).toMatchObject([
      { number: 5, kind: 'stop', requested_by: server.id },
      { number: 4, kind: 'restart', requested_by: server.id },
      { number: 3, kind: 'deploy', requested_by: server.id, tag: 'v2' },
      { number: 2, status: 'cancelled' },
      { number: 1 },
    ])
  })

  testDrawn('fits on a phone', async () => {
    const { page } = browser
    await page.setViewportSize({ width: 320, height: 640 })
    const width = page.locator('html').evaluate((html) => (html as { scrollWidth: number }).scrollWidth)
    expect(await width).toBe(320)
  })

  test('ends its login, which was in no address, and loads nothing of others', async () => {
    const { page, faults, requested } = browser
    const { dashboard_url, root_password } = await servers().credentials(server.id)
    const session = String(await page.evaluate(() => Object.values(sessionStorage)[0]))
    expect(await ask(session)).toMatchObject({ status: 200 })
    await the('button', 'Log out').click()
    await page.getByLabel('Password').waitFor()
    expect(await ask(session)).toMatchObject({ status: 401 })
    expect(await page.evaluate(() => Object.values(sessionStorage))).toEqual([])
    for (const url of requested) {
      expect(new URL(url).origin).toBe(new URL(dashboard_url).origin)
      expect(url).not.toMatch(new RegExp(`kds_|${root_password}`))
    }
    expect(faults).toEqual([])
  })

  test('lets the browser run its own files only', async () => {
    const { dashboard_url } = await servers().credentials(server.id)
    const answer = await fetch(dashboard_url)
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8'])
    expect(answer.headers.get('content-security-policy')).toMatch(/^default-src 'none'; script-src 'self';/)
    expect(answer.headers.get('content-security-policy')).not.toContain('unsafe')
    expect(await answer.text()).not.toMatch(/<script>|<style|style=|\son\w+=/)
    expect(await tenant.owner.ask('GET', '/deploy/nothing')).toMatchObject({ status: 404 })
  })
})

describe('the credentials of a deploy server', () => {
  test('end when the deletion of the deploy server is accepted', async () => {
    const [session, { api_token }] = [await logIn(), await servers().credentials(server.id)]
    const { operation } = await servers().delete(server.id)
    for (const token of [session, api_token]) expect(await ask(token)).toMatchObject({ status: 401 })
    await operation.success()
    expect(await tenant.owner.ask('GET', `${path}/credentials`)).toMatchObject({ status: 404 })
  })
})
