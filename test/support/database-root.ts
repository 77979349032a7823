import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { MongodbSecrets } from '../../script/lib/secrets.ts'
import { layout, stackSettings } from './stack.ts'

/** The URL of a database of the stack's MongoDB, for its root user. */
export function urlOfRoot(database: string): string {
  const { rootPassword } = JSON.parse(
    readFileSync(join(layout.state, 'mongodb.json'), 'utf8'),
  ) as MongodbSecrets
  const url = new URL(stackSettings().KEELSON_MONGODB_URL)
  Object.assign(url, { username: 'root', password: rootPassword, pathname: `/${database}` })
  url.searchParams.set('authSource', 'admin')
  return url.href
}
