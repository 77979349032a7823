import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { readLayout } from '../../../lib/settings.ts'

// Other stores of vectors, which the platform does not need: they are installed when they are measured, below its state.

const versions = { npm: { 'sqlite-vec': '0.1.9', usearch: '2.26.2' }, python: { chromadb: '1.5.9' } }
const folder = (kind: keyof typeof versions): string => join(readLayout().state, 'bench', `vectors-${kind}`)
const run = promisify(execFile)

export const titles = {
  sqliteVec: `sqlite-vec ${versions.npm['sqlite-vec']}`,
  usearch: `usearch ${versions.npm.usearch}`,
  chroma: `Chroma ${versions.python.chromadb}`,
}

/** The folder whose `node_modules` has them. */
export function installedNpm(): Promise<string> {
  const npm = join(dirname(process.execPath), 'npm')
  const packages = Object.entries(versions.npm).map(([name, version]) => `${name}@${version}`)
  return once('npm', async (into) => {
    await writeFile(join(into, 'package.json'), '{"private":true}')
    // Both bring their libraries: no script of theirs has to run.
    await run(npm, ['install', '--save-exact', '--ignore-scripts', '--no-audit', '--no-fund', ...packages], {
      cwd: into,
    })
  })
}

/** The folder of a Python of its own that has Chroma. */
export function installedChroma(): Promise<string> {
  return once('python', async (into) => {
    await run('python3', ['-m', 'venv', into])
    const wanted = `chromadb==${versions.python.chromadb}`
    await run(join(into, 'bin/pip'), ['install', '--quiet', wanted], { maxBuffer: 2 ** 26 })
  })
}

async function once(
  kind: keyof typeof versions,
  install: (into: string) => Promise<unknown>,
): Promise<string> {
  const into = folder(kind)
  const done = join(into, `.done-${Object.values(versions[kind]).join('-')}`)
  if (existsSync(done)) return into
  await mkdir(into, { recursive: true })
  await install(into)
  await writeFile(done, '')
  return into
}
