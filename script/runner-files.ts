import { cpSync, existsSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'

// Collects what worker/runner.ts needs in a folder, for its image: `node script/runner-files.ts FOLDER`. Its own files go to
// `code`, and the packages that these import, with what those depend on, to `node_modules`.

const root = resolve(import.meta.dirname, '..')
const [folder = ''] = process.argv.slice(2)

/** Only bundling needs these, which a worker without workflows never does. It loads webpack's first file nevertheless. */
const alone = new Set(['webpack'])
const left = new Set(['@swc/core', 'swc-loader', 'source-map-loader', 'terser-webpack-plugin'])
const unused = /\.(map|d\.ts|d\.mts|d\.cts|md|rs|proto)$/
const notHere = `${process.arch === 'x64' ? 'x86_64' : 'aarch64'}-unknown-linux-gnu`

const imports = /^(?:import|export)(?! type)[^']*? from '([^']+)'|import\('([^']+)'\)|^import '([^']+)'/gm
const byPath = /new URL\('([^']+\.ts)', import\.meta\.url\)/g

const files = new Set<string>()
const packages = new Set<string>()

function follow(file: string): void {
  if (files.has(file)) return
  files.add(file)
  const text = readFileSync(file, 'utf8')
  for (const [, url = ''] of text.matchAll(byPath)) follow(resolve(dirname(file), url))
  for (const [, from, dynamic, bare] of text.matchAll(imports)) {
    const name = from ?? dynamic ?? bare ?? ''
    if (name.startsWith('.')) follow(resolve(dirname(file), name))
    else if (!name.startsWith('node:')) need(/^(@[^/]+\/)?[^/]+/.exec(name)?.[0] ?? '')
  }
}

function need(name: string): void {
  const its = join(root, 'node_modules', name)
  if (packages.has(name) || left.has(name) || !existsSync(its)) return
  packages.add(name)
  if (alone.has(name)) return
  const { dependencies = {} } = JSON.parse(readFileSync(join(its, 'package.json'), 'utf8')) as {
    dependencies?: Record<string, string>
  }
  for (const other of Object.keys(dependencies)) need(other)
}

follow(join(root, 'worker/runner.ts'))
rmSync(folder, { recursive: true, force: true })
for (const file of files) cpSync(file, join(folder, 'code', relative(root, file)))
cpSync(join(root, 'package.json'), join(folder, 'code/package.json'))
for (const name of packages)
  cpSync(join(root, 'node_modules', name), join(folder, 'node_modules', name), {
    recursive: true,
    filter: (path) =>
      !unused.test(path) &&
      !/core-bridge\/(sdk-core|src|bridge-macros)$/.test(path) &&
      (!/core-bridge\/releases\/[^/]+$/.test(path) || path.endsWith(notHere)),
  })
