import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { temporalClient } from '../../lib/temporal.ts'
import { ownerFile } from '../../script/lib/secrets.ts'
import { type OpenPage, openBrowser } from '../support/browser.ts'
import { eventually } from '../support/eventually.ts'
import { facts, layout, stackSettings } from '../support/stack.ts'
import { makeTenant } from '../support/tenants.ts'

// An operator reads a workflow in the Temporal UI, in a browser, as docs/operators.md says ("Reading payloads").

let browser: OpenPage
let container: string
let workflow: string
beforeAll(async () => {
  const tenant = await makeTenant()
  const accepted = await tenant.containers.create({ name: `ui-${newId()}`, image: 'busybox:latest' })
  const { resource_id, workflow_id } = await accepted.operation.success()
  ;[container, workflow] = [resource_id, workflow_id]
  // It ends later than its operation, and the UI shows no end of a workflow that it found running: not within a minute.
  const temporal = temporalClient(stackSettings())
  await temporal.workflow.getHandle(workflow).result()
  await temporal.connection.close()
  browser = await openBrowser(1300, 900)
})
afterAll(() => browser?.close())

/** Opens the history of the workflow. */
async function openHistory(): Promise<void> {
  const { temporal_ui_url, temporal_namespace } = facts()
  const { page } = browser
  await page.goto(`${temporal_ui_url}/namespaces/${temporal_namespace}/workflows/${workflow}`)
  await page.getByText('Workflow Execution Completed').first().waitFor()
}

const step = () => browser.page.getByText(`Run container ${container} on host`).first()

test('without the codec the UI shows no summary and asks nobody for one', async () => {
  await openHistory()
  expect(await step().count()).toBe(0)
  expect(browser.requested.filter((url) => url.includes('/codec'))).toEqual([])
})

test('with the codec, after a sign-in, the UI shows what each step does to which thing', async () => {
  const { page, requested } = browser
  const codec = `${facts().api_url}/codec`
  const { email, password } = JSON.parse(readFileSync(ownerFile(layout), 'utf8')) as Record<string, string>
  await page.goto(codec)
  await page.getByLabel('E-mail').fill(email ?? '')
  await page.getByLabel('Password').fill(password ?? '')
  await page.getByRole('button', { name: 'Sign in' }).click()
  await page.getByText('Signed in').waitFor()

  await page.goto(`${facts().temporal_ui_url}/namespaces/${facts().temporal_namespace}/workflows`)
  const endpoint = page.getByLabel('Codec Server browser endpoint')
  await eventually(async () => {
    // The page shows its buttons before they work.
    if (!(await endpoint.isVisible())) await page.getByTestId('data-encoder-status').click()
    return endpoint.isVisible()
  })
  await endpoint.fill(codec)
  await page.getByText('Include cross-origin credentials').click()
  await page.getByRole('button', { name: 'Apply' }).click()

  await openHistory()
  await step().waitFor()
  expect(requested).toContain(`${codec}/decode`)
})
