import {
  type BaseImages,
  executed,
  firstOf,
  type Found,
  type Generated,
  has,
  isSimple,
  lines,
  type Nothing,
  procfile,
} from './dockerfile.ts'
import { serving } from './static.ts'

interface Manifest {
  scripts?: Record<string, string>
  main?: string
  engines?: { node?: string }
  packageManager?: string
  workspaces?: unknown
  dependencies?: Record<string, string>
  devDependencies?: Record<string, string>
}

interface Manager {
  name: 'npm' | 'pnpm' | 'yarn'
  reason: string
  /** Beside package.json. */
  files: string[]
  install: string
  /** Without what only the build needs. */
  installForRun: string
  prune: string
  run: string
  cache: string
}

/** Node by its package.json: a server, or a site that is built and then served as files. */
export function forNode(found: Found, images: BaseImages): Generated | Nothing {
  const manifest = parse(found.texts['package.json'] ?? '')
  if (!manifest) return { nothing: 'package.json is not valid JSON' }
  const manager = managerOf(found, manifest)
  const { image, reason: version } = imageFor(images['node'] ?? '', found, manifest)
  const scripts = manifest.scripts ?? {}
  const builds = scripts['build'] !== undefined
  const start = startOf(found, manifest)
  // Workspaces have a manifest in each folder, and scripts may use any file.
  const ownScript = ['preinstall', 'install', 'postinstall'].find((name) => scripts[name] !== undefined)
  const needsAll = manifest.workspaces !== undefined || ownScript !== undefined
  const reasons = [
    'it has a package.json',
    manager.reason,
    ...version,
    ...(ownScript
      ? [`its script \`${ownScript}\` may use any file: all are copied before the installation`]
      : []),
  ]
  const install = [
    `FROM ${image}${builds ? ' AS build' : ''}`,
    'WORKDIR /app',
    manager.name !== 'npm' && 'RUN corepack enable',
    needsAll ? 'COPY . .' : `COPY ${['package.json', ...manager.files].join(' ')} ./`,
  ]
  const cached = (what: string): string => `RUN --mount=type=cache,target=${manager.cache} ${what}`
  // `prepare` is for developers (husky and the like), whose packages are left out.
  const forRun = scripts['prepare'] === undefined ? '' : 'npm pkg delete scripts.prepare && '

  if (!start && !builds)
    return {
      nothing:
        'package.json has no script `start` and no `main`, there is no server.js, index.js, app.js or main.js, and no Procfile says what to run',
    }
  if (!start) {
    const output = outputOf(manifest)
    const text = lines(
      ...install,
      cached(manager.install),
      'COPY . .',
      `RUN ${manager.run} build`,
      '',
      serving(images['static'] ?? '', `COPY --from=build /app/${output} /srv`, { fallback: true }),
    )
    const why = `it has a script \`build\` and nothing that serves: its ${output}/ is served as files`
    return { kind: 'a Node site', reasons: [...reasons, why], text, images: [image, images['static'] ?? ''] }
  }
  const text = lines(
    ...install,
    ...(builds
      ? [
          cached(manager.install),
          'COPY . .',
          `RUN ${manager.run} build`,
          `RUN ${manager.prune}`,
          '',
          `FROM ${image}`,
          'WORKDIR /app',
          'COPY --from=build /app /app',
        ]
      : [cached(`${forRun}${manager.installForRun}`), 'COPY . .']),
    'ENV NODE_ENV=production PATH=/app/node_modules/.bin:$PATH',
    start.command,
  )
  const built = builds ? ['it has a script `build`, which runs in a stage of its own'] : []
  return { kind: 'Node', reasons: [...reasons, ...built, start.reason], text, images: [image] }
}

function parse(text: string): Manifest | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? value : null
  } catch {
    return null
  }
}

function managerOf(found: Found, { packageManager = '' }: Manifest): Manager {
  const config = ['.npmrc', '.yarnrc', '.yarnrc.yml', 'pnpm-workspace.yaml'].filter((file) =>
    has(found, file),
  )
  if (has(found, 'pnpm-lock.yaml'))
    return {
      name: 'pnpm',
      reason: 'pnpm-lock.yaml: pnpm installs exactly what it locks',
      files: ['pnpm-lock.yaml', ...config],
      install: 'pnpm install --frozen-lockfile',
      installForRun: 'pnpm install --frozen-lockfile --prod',
      prune: 'pnpm prune --prod --ignore-scripts',
      run: 'pnpm run',
      cache: '/root/.local/share/pnpm/store',
    }
  if (has(found, 'yarn.lock')) {
    const isModern = has(found, '.yarnrc.yml') || /^yarn@([2-9]|\d\d)/.test(packageManager)
    const frozen = isModern ? '--immutable' : '--frozen-lockfile'
    return {
      name: 'yarn',
      reason: 'yarn.lock: Yarn installs exactly what it locks',
      files: ['yarn.lock', ...config],
      install: `yarn install ${frozen}`,
      installForRun: isModern ? `yarn install ${frozen}` : `yarn install ${frozen} --production`,
      prune: isModern
        ? 'yarn workspaces focus --all --production'
        : 'yarn install --production --ignore-scripts',
      run: 'yarn run',
      cache: isModern ? '/root/.yarn/berry/cache' : '/usr/local/share/.cache/yarn',
    }
  }
  const lock = firstOf(found, ['package-lock.json', 'npm-shrinkwrap.json'])
  return {
    name: 'npm',
    reason: lock
      ? `${lock}: npm installs exactly what it locks`
      : 'it has no lock file of npm, pnpm or Yarn: npm installs the newest versions that package.json allows',
    files: [...(lock ? [lock] : []), ...config],
    install: lock ? 'npm ci' : 'npm install',
    installForRun: lock ? 'npm ci --omit=dev' : 'npm install --omit=dev',
    prune: 'npm prune --omit=dev',
    run: 'npm run',
    cache: '/root/.npm',
  }
}

/** The operator's image, in the major version that the files ask for, if its name says which one it has. */
function imageFor(
  image: string,
  { texts }: Found,
  { engines }: Manifest,
): { image: string; reason: string[] } {
  const asked = texts['.nvmrc'] ?? texts['.node-version'] ?? engines?.node ?? ''
  const major = /^[v^~=]?(\d+)(\.|$)/.exec(asked.trim())?.[1]
  const named = /^((?:.*\/)?node):(\d+)(.*)$/.exec(image)
  if (!major || !named || named[2] === major) return { image, reason: [] }
  const other = `${named[1]}:${major}${named[3]}`
  return { image: other, reason: [`it asks for Node ${major}: ${other}`] }
}

const servers = ['server.js', 'index.js', 'app.js', 'main.js']
/** Servers for developers, which build in memory. */
const forDevelopers =
  /\b(react-scripts start|vite(?! preview)|ng serve|vue-cli-service serve|webpack serve|parcel|gatsby develop)\b/

function startOf(found: Found, { scripts = {}, main }: Manifest): { command: string; reason: string } | null {
  const web = procfile(found)
  if (web) return { command: executed(web), reason: `Procfile: ${web}` }
  const { start } = scripts
  if (start !== undefined && !(scripts['build'] !== undefined && forDevelopers.test(start))) {
    const isAlone = isSimple(start) && !scripts['prestart'] && !scripts['poststart']
    return {
      // Without npm, which would take memory as long as the application runs.
      command: isAlone ? executed(start) : 'CMD ["npm", "start"]',
      reason: `the script \`start\`: ${start}`,
    }
  }
  const file = main !== undefined && has(found, main.replace(/^\.\//, '')) ? main : firstOf(found, servers)
  // A site's index.js is its source.
  if (!file || (start !== undefined && scripts['build'] !== undefined)) return null
  return { command: `CMD ${JSON.stringify(['node', file])}`, reason: `it has ${file}` }
}

/** Where the usual tools write a site. */
function outputOf({ dependencies, devDependencies, scripts = {} }: Manifest): string {
  const uses = (name: string): boolean => ({ ...dependencies, ...devDependencies })[name] !== undefined
  const given = /--(?:outDir|out-dir|output|dist-dir|dest)[= ]\.?\/?([\w./-]+)/.exec(
    scripts['build'] ?? '',
  )?.[1]
  if (given) return given
  if (uses('react-scripts') || uses('@sveltejs/adapter-static') || uses('@docusaurus/core')) return 'build'
  if (uses('gatsby')) return 'public'
  if (uses('@11ty/eleventy')) return '_site'
  if (uses('next')) return 'out'
  return 'dist'
}
