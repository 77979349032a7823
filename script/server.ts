// Runs the whole platform on this machine. See `script/server --help`; script/server refuses unknown flags before.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, openSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { banner } from './lib/banner.ts'
import { askControl, isVerb } from './lib/control.ts'
import { destroy } from './lib/destroy.ts'
import type { RoleStatus } from './lib/role.ts'
import { type Layout, readLayout } from './lib/settings.ts'
import { type ServerFacts, Supervisor } from './lib/supervisor.ts'

const usage = readFileSync(new URL('lib/server-usage.txt', import.meta.url), 'utf8').trimEnd()

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    help: { type: 'boolean' },
    detach: { type: 'boolean' },
    demo: { type: 'boolean' },
    yes: { type: 'boolean' },
    state: { type: 'string' },
    'port-base': { type: 'string' },
    workers: { type: 'string', default: '1' },
    apis: { type: 'string', default: '1' },
    hosts: { type: 'string', default: '1' },
  },
})

async function main(layout: Layout): Promise<void> {
  const [command = 'run', role] = positionals
  if (flags.help) console.log(usage)
  else if (command === 'run' && flags.demo && (await isRunning(layout))) await demo(layout)
  else if (command === 'run') await (flags.detach ? detach(layout) : run(layout))
  else if (command === 'status') printRoles(await askControl(layout, 'GET', '/roles'))
  else if (command === 'stop' && !role) await askControl(layout, 'POST', '/stop')
  else if (command === 'destroy' && flags.yes) await destroy(layout)
  else if (isVerb(command) && role)
    printRoles([await askControl(layout, 'POST', `/roles/${role}/${command}`)])
  else throw new Error(`not understood\n${usage}`)
}

/** Runs in this process until a signal, or a `stop` request, has ended everything. */
async function run(layout: Layout): Promise<void> {
  const begun = performance.now()
  const counts = { apis: Number(flags.apis), workers: Number(flags.workers), hosts: Number(flags.hosts) }
  const supervisor = new Supervisor(layout, counts)
  let signals = 0
  const onSignal = () => void (signals++ === 0 ? supervisor.stopAll() : supervisor.killAll())
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal)
  // `detach` was interrupted while this server was starting.
  process.once('disconnect', onSignal)
  try {
    if (process.send && !process.connected) throw new Error('interrupted')
    const { facts, password } = await supervisor.start()
    process.off('disconnect', onSignal)
    const started: Started = { facts, password, seconds: (performance.now() - begun) / 1000 }
    if (process.connected) process.send?.({ started })
    else if (!process.send) await welcome(layout, started)
  } catch (error) {
    if (process.connected) process.send?.({ failed: (error as Error).message })
    await supervisor.stopAll()
    throw error
  }
  process.channel?.unref() // the parent of a detached server has ended
  await supervisor.ended
  process.exit()
}

/** Starts this program again in the background, and waits until it is ready. */
async function detach(layout: Layout): Promise<void> {
  mkdirSync(join(layout.state, 'log'), { recursive: true })
  const output = openSync(join(layout.state, 'log/server.out'), 'a', 0o600)
  const again = ['--state', layout.state, '--workers', flags.workers, '--apis', flags.apis]
  again.push('--hosts', flags.hosts)
  if (flags['port-base']) again.push('--port-base', flags['port-base'])
  const child = spawn(process.execPath, [process.argv[1] as string, ...again], {
    detached: true,
    stdio: ['ignore', output, output, 'ipc'],
  })
  const ended = once(child, 'exit').then(() => [
    { failed: `the server ended: see ${layout.state}/log/server.out` },
  ])
  const [message] = (await Promise.race([once(child, 'message'), ended])) as [
    { started?: Started; failed?: string },
  ]
  if (!message.started) throw new Error(message.failed)
  child.disconnect()
  child.unref()
  await welcome(layout, message.started)
}

interface Started {
  facts: ServerFacts
  password: string | null
  seconds: number
}

async function welcome(layout: Layout, { facts, password, seconds }: Started): Promise<void> {
  console.log(banner(layout, facts, password, seconds))
  if (flags.demo) await demo(layout)
}

const isRunning = (layout: Layout): Promise<boolean> =>
  askControl(layout, 'GET', '/roles').then(
    () => true,
    () => false,
  )

/** The demo is a client: its own process, which knows the platform only through the API. */
async function demo(layout: Layout): Promise<void> {
  const script = join(layout.repository, 'script/demo.ts')
  const child = spawn(process.execPath, [script, layout.state], { stdio: 'inherit' })
  const [code] = await once(child, 'exit')
  if (code !== 0) throw new Error('the demo failed; the server runs on')
}

function printRoles(roles: unknown): void {
  console.table((roles as RoleStatus[]).map(({ name, ...rest }) => ({ role: name, ...rest })))
}

await main(readLayout({ state: flags.state, portBase: flags['port-base'] })).catch((error: Error) => {
  console.error(`script/server: ${error.message}`)
  process.exit(1)
})
