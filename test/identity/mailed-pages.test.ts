import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { type OpenPage, openBrowser } from '../support/browser.ts'
import { ask } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { mailsTo } from '../support/mailbox.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Mailed links, followed in a browser as who gets the mail would.

let tenant: TestTenant
let browser: OpenPage
const email = `${newId()}@example.com`
const [first, second] = [`first ${newId()}`, `second ${newId()}`]
beforeAll(async () => {
  tenant = await makeTenant()
  browser = await openBrowser()
})
afterAll(() => browser?.close())

/** The link in the newest of so many mails. */
const linkIn = (mails: number): Promise<string> =>
  eventually(async () => {
    const all = await mailsTo(email)
    return all.length === mails && /https?:\S+#token=\S+/.exec(all.at(-1)?.text ?? '')?.[0]
  })
const login = (password: string) => ask('POST', '/api/v1/auth/login', { body: { email, password } })

async function choose(password: string, again = password): Promise<void> {
  const { page } = browser
  await page.getByLabel('New password').fill(password)
  await page.getByLabel('Repeat the password').fill(again)
  await page.getByRole('button').click()
}

test('an invitation is accepted on its page, and the token leaves the address', async () => {
  const { page, requested, faults } = browser
  await tenant.owner.ask('POST', '/api/v1/users', { email, name: 'Ada', roles: ['viewer'] })
  const link = await linkIn(1)
  const answer = await page.goto(link)
  expect(answer?.headers()).toMatchObject({
    'referrer-policy': 'no-referrer',
    'content-security-policy': expect.stringContaining("default-src 'none'"),
  })
  await page.getByRole('heading', { name: 'Accept the invitation' }).waitFor()
  expect(page.url()).toBe(`${facts().api_url}/accept-invitation`)
  await choose(first, 'another')
  await page.getByText('The two passwords differ').waitFor()
  expect(faults).toEqual([])
  await choose('short')
  await page.getByRole('alert').filter({ hasText: 'password: ' }).waitFor()
  await choose(first)
  await page.getByRole('heading', { name: 'The password is set' }).waitFor()
  expect(await login(first)).toMatchObject({ status: 200 })
  for (const url of requested) expect(new URL(url).origin).toBe(new URL(facts().api_url).origin)
  expect(requested.filter((url) => url.includes('/api/'))).toHaveLength(2)
})

test('a forgotten password is replaced on its page, once', async () => {
  const { page } = browser
  await ask('POST', '/api/v1/auth/password-reset', { body: { email } })
  const link = await linkIn(2)
  await page.goto(link)
  await page.getByRole('heading', { name: 'Choose a new password' }).waitFor()
  await choose(second)
  await page.getByRole('heading', { name: 'The password is set' }).waitFor()
  expect([(await login(first)).status, (await login(second)).status]).toEqual([401, 200])

  await page.goto('about:blank')
  await page.goto(link)
  await choose(first)
  await eventually(async () => ((await page.getByRole('alert').textContent()) ?? '') !== '')
  expect((await login(first)).status).toBe(401)
})

test('a page without a token says so', async () => {
  await browser.page.goto(`${facts().api_url}/password-reset`)
  await browser.page.getByRole('heading', { name: 'The link is incomplete' }).waitFor()
})
