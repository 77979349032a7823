import { execFile } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { eventually } from './eventually.ts'

const run = promisify(execFile)

/** A program in a real terminal, tmux: sends keys, and reads the screen as a person sees it. */
export class Tmux {
  readonly #folder: string
  private constructor(folder: string) {
    this.#folder = folder
  }

  static async open(
    command: string[],
    { cols, rows, env }: { cols: number; rows: number; env: Record<string, string> },
  ): Promise<Tmux> {
    const tmux = new Tmux(await mkdtemp(join(tmpdir(), 'keelson-tmux-')))
    const given = Object.entries(env).flatMap(([name, value]) => ['-e', `${name}=${value}`])
    const size = ['-x', String(cols), '-y', String(rows)]
    await tmux.#ask('-u', '-f', '/dev/null', 'new-session', '-d', ...size, ...given, '--', ...command)
    // Keeps the last screen after the program has ended.
    await tmux.#ask('set-option', '-g', 'remain-on-exit', 'on')
    return tmux
  }

  /** Presses keys by tmux's names, such as `Enter`, `Escape` and `C-c`; types any other text. */
  press = async (...keys: string[]): Promise<void> => void (await this.#ask('send-keys', ...keys))
  type = async (text: string): Promise<void> => void (await this.#ask('send-keys', '-l', text))
  resize = async (cols: number, rows: number): Promise<void> =>
    void (await this.#ask('resize-window', '-x', String(cols), '-y', String(rows)))

  /** The lines of the screen. */
  async screen(): Promise<string[]> {
    return (await this.#ask('capture-pane', '-p')).split('\n').slice(0, -1)
  }

  /** Resolves with the screen when it matches. */
  async shows(is: (lines: string[]) => boolean, withinMs = 120_000): Promise<string[]> {
    let lines: string[] = []
    const shown = async (): Promise<boolean> => is((lines = await this.screen()))
    await eventually(shown, { withinMs }).catch((cause: unknown) => {
      throw new Error(`the screen is\n${lines.join('\n')}`, { cause })
    })
    return lines
  }

  async close(): Promise<void> {
    await this.#ask('kill-server').catch(() => {})
    await rm(this.#folder, { recursive: true })
  }

  async #ask(...args: string[]): Promise<string> {
    return (await run('tmux', ['-S', join(this.#folder, 'socket'), ...args])).stdout
  }
}
