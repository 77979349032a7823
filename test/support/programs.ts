import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { tool } from '../../script/lib/settings.ts'
import { layout } from './stack.ts'

const run = promisify(execFile)

/** The path of a program of this platform: bootstrap's own, else the one in PATH. */
export const programOf = (name: string, folder = name): Promise<string> => pathOf(tool(layout, name, folder))

/** The path of a program in PATH; a path stays as it is. */
export async function pathOf(name: string): Promise<string> {
  const { stdout } = await run('sh', ['-c', 'command -v "$1"', 'sh', name])
  return stdout.trim()
}
