import { networkInterfaces } from 'node:os'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { type OpenPage, openBrowser } from '../support/browser.ts'
import { type OwnApi, startOwnApi } from '../support/own-api.ts'

// The reference in a browser over plain HTTP, by an address that browsers do not trust as they trust localhost.

let api: OwnApi
let open: OpenPage
let origin: string
beforeAll(async () => {
  api = await startOwnApi({ KEELSON_API_HOST: '0.0.0.0' })
  const addresses = Object.values(networkInterfaces()).flatMap((all) => all ?? [])
  const address = addresses.find(({ family, internal }) => family === 'IPv4' && !internal)?.address
  origin = `http://${address}:${new URL(api.url).port}`
  open = await openBrowser(1300, 1000)
})
afterAll(async () => {
  await open?.close()
  await api?.stop()
})

test('the reference shows its areas, and an operation with a body that can be sent', async () => {
  const { page, faults, requested } = open
  await page.goto(`${origin}/docs`)
  await page.locator('.opblock-tag-section').first().waitFor()
  expect(await page.locator('.opblock-tag-section').count()).toBeGreaterThan(15)
  expect(await page.locator('.opblock').count()).toBe(0)
  await page.locator('[data-tag="Containers"]').click()
  const operation = page.locator('#operations-Containers-createContainer')
  await operation.locator('.opblock-summary-control').click()
  await operation.locator('.try-out__btn').click()
  const body = await operation.locator('textarea.body-param__text').inputValue()
  expect(JSON.parse(body)).toMatchObject({ name: 'hello', image: 'keelson/hello:1' })
  const picture = process.env['KEELSON_TEST_PICTURE']
  if (picture) await page.screenshot({ path: picture })
  expect(await page.getByText('/internal/').count()).toBe(0)
  expect(requested.filter((url) => !url.startsWith(`${origin}/`) && !url.startsWith('data:'))).toEqual([])
  // The header protects where there is TLS; a browser says that it has no effect here.
  expect(faults.filter((fault) => !fault.startsWith('The Cross-Origin-Opener-Policy header'))).toEqual([])
})
