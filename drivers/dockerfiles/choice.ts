import { type BaseImages, type Found, type Generated, has, type Nothing } from './dockerfile.ts'
import { forGo } from './go.ts'
import { forNode } from './node.ts'
import { forPhp } from './php.ts'
import { forPython } from './python.ts'
import { forStatic } from './static.ts'

/** The files whose text the choice depends on. */
export const manifestNames = [
  'package.json',
  'requirements.txt',
  'pyproject.toml',
  'uv.lock',
  'poetry.lock',
  'Pipfile',
  'Procfile',
  'go.mod',
  'composer.json',
  '.nvmrc',
  '.node-version',
  '.dockerignore',
]

const python = ['uv.lock', 'poetry.lock', 'Pipfile.lock', 'requirements.txt', 'pyproject.toml', 'manage.py']

/** What never belongs into an image: a dependency that was built elsewhere, a history, a secret. */
const neverCopied = ['.git', '**/node_modules', '**/__pycache__', '.venv', '.env', '.env.*', '**/.DS_Store']

/**
 * Generates a Dockerfile for files without one. Layers come in the order in which files change: what is installed by a
 * lock file is built again only if that has changed.
 */
export function dockerfileFor(found: Found, images: BaseImages): (Generated & { ignore: string }) | Nothing {
  const generated = choose(found, images)
  return 'nothing' in generated ? generated : { ...generated, ignore: ignoreOf(found) }
}

/** The ignore file of a Dockerfile, which takes the place of the general one. */
export const ignoreOf = ({ texts }: Found): string =>
  [...neverCopied, texts['.dockerignore'] ?? ''].join('\n')

function choose(found: Found, images: BaseImages): Generated | Nothing {
  // The language that serves comes first: many of them have a package.json for their pages too.
  if (has(found, 'go.mod')) return forGo(found, images)
  if (has(found, 'composer.json')) return forPhp(found, images)
  if (python.some((path) => has(found, path))) return forPython(found, images)
  if (has(found, 'package.json')) return forNode(found, images)
  if (has(found, 'index.php') || has(found, 'public/index.php')) return forPhp(found, images)
  if (found.paths.some((path) => /^(main|app|server)\.py$/.test(path))) return forPython(found, images)
  const site = forStatic(found, images)
  if (!('nothing' in site)) return site
  return {
    nothing:
      'The artifact has no Dockerfile, and none could be generated: there is no package.json, requirements.txt, pyproject.toml, go.mod, composer.json, index.php or index.html at its top',
  }
}
