import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { facts } from '../stack.ts'

/** Makes the image of stores with pgvector on the host's engine. `script/bootstrap --tests` has its packages. */
export async function makePgvectorImage(): Promise<void> {
  await promisify(execFile)('script/images', ['--pgvector'], {
    env: { ...process.env, KEELSON_DOCKER_HOST: facts().docker_host },
  })
}
