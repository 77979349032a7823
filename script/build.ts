// Builds the only build product: the workflow code, bundled for Temporal's workers, into
// $KEELSON_STATE/build/workflows.js. Does nothing if its sources are unchanged.
import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { glob, mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import { stateFolder } from '../config.ts'
import { failureConverterPath } from '../lib/temporal.ts'

const repository = fileURLToPath(new URL('..', import.meta.url))
const entry = join(repository, 'workflows/index.ts')
const summaries = join(repository, 'workflows/summaries.ts')

/** A hash of all possible parts of the bundle: our shared code, and the SDK by the lock file. */
async function sourceHash(): Promise<string> {
  const hash = createHash('sha256')
  const files = await Array.fromAsync(
    glob(['script/build.ts', 'workflows/**/*.ts', 'lib/**/*.ts', 'package-lock.json'], { cwd: repository }),
  )
  for (const file of files.toSorted()) hash.update(file).update(await readFile(join(repository, file)))
  return hash.digest('hex')
}

/**
 * The bundle without the text of its sources. Stack traces need the names and lines alone, and each worker would hold the text
 * in memory several times.
 */
function withoutSources(code: string): string {
  const at = code.lastIndexOf('base64,') + 'base64,'.length
  const { sourcesContent: _, ...map } = JSON.parse(Buffer.from(code.slice(at), 'base64').toString())
  return code.slice(0, at) + Buffer.from(JSON.stringify(map)).toString('base64')
}

const folder = resolve(stateFolder(), 'build')
const bundle = join(folder, 'workflows.js')
const hash = await sourceHash()
const builtFrom = await readFile(`${bundle}.hash`, 'utf8').catch(() => '')

if (existsSync(entry) && !(existsSync(bundle) && builtFrom === hash)) {
  const begun = performance.now()
  // Imported late: it takes longer than the check above.
  const { bundleWorkflowCode, DefaultLogger } = await import('@temporalio/worker')
  const { code } = await bundleWorkflowCode({
    workflowsPath: entry,
    failureConverterPath,
    workflowInterceptorModules: [summaries],
    // Evaluated once, not per workflow. They keep no state of their own.
    preloadModules: [join(repository, 'workflows/sandbox.ts'), entry, summaries],
    logger: new DefaultLogger('WARN'),
  })
  await mkdir(folder, { recursive: true })
  // Renamed into place, so that a starting worker reads the old bundle or the new one as a whole.
  await writeFile(`${bundle}.new`, withoutSources(code))
  await rename(`${bundle}.new`, bundle)
  await writeFile(`${bundle}.hash`, hash)
  console.log(`${'workflow bundle'.padEnd(56)} ${((performance.now() - begun) / 1000).toFixed(1)} s`)
}
process.exit() // the SDK's native runtime would keep the process running
