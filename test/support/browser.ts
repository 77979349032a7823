import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { chromium, type Locator, type Page, type Request } from 'playwright-core'

// A real browser, Debian's Chromium, with a profile of its own.

const folders = (process.env['PATH'] ?? '').split(delimiter)
const executablePath =
  folders.map((folder) => join(folder, 'chromium')).find((path) => existsSync(path)) ?? ''
const flags = [
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

export interface OpenPage {
  page: Page
  /** Errors of the console, uncaught exceptions and violations of the content security policy. */
  faults: string[]
  /** The address of each request. */
  requested: string[]
  /** Opens an address, and waits until its page shows `sign`. */
  open(url: string, sign: Locator): Promise<void>
  close(): Promise<void>
}

/**
 * Chromium breaks off all its requests when the machine gets or loses a network address, as it does with each container of
 * the tests beside this one. A page of many files is not shown then until it is loaded again.
 */
const isBrokenOff = (reason: string | undefined): boolean => reason?.includes('ERR_NETWORK_CHANGED') === true

/** Opens a page in a browser of its own. */
export async function openBrowser(width = 1100, height = 900): Promise<OpenPage> {
  const profile = await mkdtemp(join(tmpdir(), 'browser-'))
  const context = await chromium.launchPersistentContext(profile, {
    executablePath,
    headless: true,
    chromiumSandbox: false, // tests run as root, with which it does not work
    args: flags,
    viewport: { width, height },
    locale: 'en-GB',
    timeout: 60_000,
  })
  context.setDefaultTimeout(60_000)
  const page = context.pages()[0] ?? (await context.newPage())
  const faults: string[] = []
  const requested: string[] = []
  page.on('console', (said) => {
    if (isBrokenOff(said.text())) return
    if (said.type() === 'error' || /content security policy/i.test(said.text())) faults.push(said.text())
  })
  page.on('pageerror', (error) => faults.push(String(error)))
  page.on('request', (request) => requested.push(request.url()))
  const open = async (url: string, sign: Locator): Promise<void> => {
    const broken = Promise.withResolvers<never>()
    const hear = (request: Request) => {
      const reason = request.failure()?.errorText
      if (isBrokenOff(reason)) broken.reject(new Error(reason))
    }
    page.on('requestfailed', hear)
    try {
      await Promise.race([page.goto(url).then(() => sign.waitFor()), broken.promise])
    } catch (error) {
      if (!isBrokenOff(String(error))) throw error
      await open(url, sign)
    } finally {
      page.off('requestfailed', hear)
    }
  }
  return {
    page,
    faults,
    requested,
    open,
    async close() {
      await context.close()
      await rm(profile, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
