// Adds to package-lock.json what `npm ci` requires and `npm install` omits if a registry does not offer it: the
// optional packages of other platforms. They are never installed here. Run it after each change of a dependency.
import { readFileSync, writeFileSync } from 'node:fs'

interface LockedPackage {
  version?: string
  dev?: boolean
  optionalDependencies?: Record<string, string>
  [field: string]: unknown
}
interface Lock {
  packages: Record<string, LockedPackage>
}

const systems = ['android', 'darwin', 'freebsd', 'openharmony', 'win32', 'linux']
const processors = ['arm64', 'arm', 'ia32', 'loong64', 'ppc64', 'riscv64', 's390x', 'x64']

/** The paths where npm looks for a dependency of the package at `path`. */
function placesOf(name: string, path: string): string[] {
  const places = [`node_modules/${name}`]
  for (let at = path; at; at = at.slice(0, Math.max(0, at.lastIndexOf('/node_modules/')))) {
    places.push(`${at}/node_modules/${name}`)
  }
  return places
}

/** These packages name their platform: `@biomejs/cli-linux-arm64-musl`. */
function platformOf(name: string): Record<string, string[]> | undefined {
  const os = systems.find((system) => name.includes(system))
  const cpu = processors.find((processor) => name.includes(processor))
  if (!os || !cpu) return undefined
  return { os: [os], cpu: [cpu], ...(os === 'linux' && { libc: [name.includes('musl') ? 'musl' : 'glibc'] }) }
}

const file = new URL('../package-lock.json', import.meta.url)
const lock = JSON.parse(readFileSync(file, 'utf8')) as Lock
let added = 0
for (const [path, asking] of Object.entries(lock.packages)) {
  for (const [name, version] of Object.entries(asking.optionalDependencies ?? {})) {
    if (placesOf(name, path).some((place) => place in lock.packages)) continue
    const platform = platformOf(name)
    if (!platform) throw new Error(`${name} is missing, and its name does not say for which platform it is`)
    lock.packages[`node_modules/${name}`] = {
      version,
      ...platform,
      ...(asking.dev && { dev: true }),
      optional: true,
    }
    added++
  }
}
lock.packages = Object.fromEntries(
  Object.entries(lock.packages).toSorted(([a], [b]) => a.localeCompare(b, 'en')),
)
writeFileSync(file, `${JSON.stringify(lock, null, 2)}\n`)
console.log(`${added} packages of other platforms added to package-lock.json`)
