import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { readdir, readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { processStat } from './process-stat.ts'
import { EngineUnavailable, HostDiskFull, HostNotEquipped } from '../errors.ts'
import { Launcher, type Request } from './launcher.ts'

const execute = promisify(execFile)

/**
 * The environment of other programs: none of this process's settings and secrets, and English messages for matching.
 */
export const environment = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  LC_ALL: 'C',
}

const outputLimitBytes = 64 * 1024 * 1024

export interface RunOptions {
  /** The program's input. */
  input?: string | undefined
  signal?: AbortSignal | undefined
  onOutput?: (text: string) => void
}

/**
 * Runs a system program and returns its stdout. Throws HostNotEquipped if it is missing, HostDiskFull, the signal's
 * reason, else EngineUnavailable with the program's message in the cause.
 */
export async function run(program: string, args: string[], options: RunOptions = {}): Promise<string> {
  const { signal } = options
  signal?.throwIfAborted()
  try {
    const request = { program, args, ...options }
    return launcherPath === null ? await fork(request) : await launcher(launcherPath).run(request)
  } catch (error) {
    if (signal?.aborted) throw signal.reason
    if ((error as NodeJS.ErrnoException).code === 'ENOENT')
      throw new HostNotEquipped(`the program ${program}`, error)
    if (/no space left/i.test(stderrOf(error))) throw new HostDiskFull(error)
    throw new EngineUnavailable(`${program} failed on the host`, error)
  }
}

async function fork({ program, args, input, signal, onOutput }: Request): Promise<string> {
  const running = execute(program, args, {
    env: environment,
    maxBuffer: outputLimitBytes,
    killSignal: 'SIGKILL',
    ...(signal ? { signal } : {}),
  })
  const { stdin } = running.child
  stdin?.on('error', () => {}) // it ended without reading: its exit code says why
  stdin?.end(input)
  if (onOutput) running.child.stdout?.on('data', onOutput)
  return (await running).stdout
}

let launcherPath: string | null = null
let launched: Launcher | null = null

/** Programs are started by this launcher from now on; null: by this process. */
export function useLauncher(path: string | null): void {
  launcherPath = path
  launched?.close()
  launched = null
}

/** Another one if the last has ended. */
function launcher(path: string): Launcher {
  if (!launched?.isRunning) launched = new Launcher(path, environment)
  return launched
}

/** The stderr of a failed program, from the error of `run` or from its cause. */
export function stderrOf(error: unknown): string {
  if (typeof error !== 'object' || error === null) return ''
  const { stderr, cause } = error as { stderr?: unknown; cause?: unknown }
  return typeof stderr === 'string' ? stderr : stderrOf(cause)
}

export interface Process {
  pid: number
  args: string[]
}

/** The process, if it is alive. A zombie counts as ended. */
export async function livingProcess(pid: number): Promise<Process | null> {
  try {
    const cmdline = await readFile(`/proc/${pid}/cmdline`, 'utf8')
    const { state = 'X' } = processStat(pid) ?? {}
    return state === 'Z' || state === 'X' ? null : { pid, args: argumentsIn(cmdline) }
  } catch {
    return null
  }
}

const argumentsIn = (cmdline: string): string[] => cmdline.split('\0').slice(0, -1)

export async function processIds(): Promise<number[]> {
  const names = await readdir('/proc')
  return names.filter((name) => /^\d+$/.test(name)).map(Number)
}

/** All live processes with this text in one of their arguments, except this one. */
export async function processesWith(text: string): Promise<Process[]> {
  const pids = (await processIds()).filter((pid) => pid !== process.pid)
  return pids.map(processNow).filter(({ args }) => args.some((arg) => arg.includes(text)))
}

/** Without arguments if it has ended, also as a zombie. Synchronous: a tenth of the CPU time of promises. */
function processNow(pid: number): Process {
  try {
    return { pid, args: argumentsIn(readFileSync(`/proc/${pid}/cmdline`, 'utf8')) }
  } catch {
    return { pid, args: [] }
  }
}

const lookEveryMs = 5

/** Waits for a condition. Throws EngineUnavailable with `otherwise` after `withinMs`. */
export async function until(
  check: () => boolean | Promise<boolean>,
  withinMs: number,
  otherwise: string,
): Promise<void> {
  const deadline = Date.now() + withinMs
  while (!(await check())) {
    if (Date.now() > deadline) throw new EngineUnavailable(otherwise)
    await delay(lookEveryMs)
  }
}

const killedWithinMs = 10_000

/** Kills the processes that still have `text` in their arguments (pids may be reused), and waits until they end. */
export async function killProcesses(pids: number[], text: string): Promise<void> {
  const lives = async (pid: number): Promise<boolean> =>
    (await livingProcess(pid))?.args.some((arg) => arg.includes(text)) ?? false
  for (const pid of pids) if (await lives(pid)) signalProcess(pid, 'SIGKILL')
  for (const pid of pids)
    await until(async () => !(await lives(pid)), killedWithinMs, 'A process does not end')
}

export function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
