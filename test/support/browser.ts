import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { chromium, type Page } from 'playwright-core'
import { programOf } from './browser-network.ts'

// A real browser, Debian's Chromium, with a profile of its own.

const folders = (process.env['PATH'] ?? '').split(delimiter)
const installed = folders.map((folder) => join(folder, 'chromium')).find((path) => existsSync(path)) ?? ''
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
  close(): Promise<void>
}

/** Opens a page in a browser of its own. */
export async function openBrowser(width = 1100, height = 900): Promise<OpenPage> {
  const profile = await mkdtemp(join(tmpdir(), 'browser-'))
  const program = await programOf(installed, profile)
  const context = await chromium.launchPersistentContext(join(profile, 'profile'), {
    executablePath: program.path,
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
    if (said.type() === 'error' || /content security policy/i.test(said.text())) faults.push(said.text())
  })
  page.on('pageerror', (error) => faults.push(String(error)))
  page.on('request', (request) => requested.push(request.url()))
  return {
    page,
    faults,
    requested,
    async close() {
      await context.close()
      program.close()
      await rm(profile, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}
