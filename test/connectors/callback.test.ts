import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { type OpenPage, openBrowser } from '../support/browser.ts'
import { facts } from '../support/stack.ts'

// The page at the end of a login in the browser.

let browser: OpenPage
beforeAll(async () => {
  browser = await openBrowser()
})
afterAll(() => browser.close())

const at = (query: string): string => `${facts().api_url}/connectors/callback${query}`

test('shows the code with its state, and takes it out of the address', async () => {
  const { page, requested, faults } = browser
  const answer = await page.goto(at('?code=a%2Bb&state=xyz'))
  expect(answer?.headers()).toMatchObject({
    'referrer-policy': 'no-referrer',
    'content-security-policy': expect.stringContaining("default-src 'none'"),
  })
  expect(await page.getByLabel('Code').inputValue()).toBe('a+b#xyz')
  expect(page.url()).toBe(at(''))
  for (const url of requested) expect(new URL(url).origin).toBe(new URL(facts().api_url).origin)
  expect(faults).toEqual([])
})

test('shows as text why a login was refused, and that there is none', async () => {
  const { page, faults } = browser
  await page.goto(at('?error=access_denied&error_description=<img src=x onerror=alert(1)>&state=xyz'))
  await page.getByText('The provider says: <img src=x onerror=alert(1)>').waitFor()
  expect(page.url()).toBe(at(''))
  await page.goto(at(''))
  await page.getByText('There is no login').waitFor()
  expect(faults).toEqual([])
})
