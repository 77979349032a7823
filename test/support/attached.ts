import { readdir } from 'node:fs/promises'
import { Names } from '../../drivers/linux/names.ts'
import { Attachment } from '../../models/deploy/attachments.ts'
import { Nic } from '../../models/network/nics.ts'
import { Path } from '../../models/network/paths.ts'
import type { Json } from './client.ts'
import { attachmentsOf } from './clients/attachments.ts'
import { outputOf } from './microvms.ts'
import { inPostgresql, type insideOf } from './database-insides.ts'
import type { TestTenant } from './tenants.ts'

// Containers and microVMs with attached databases, seen from inside, on their host and in the database.

type Plural = 'containers' | 'microvms'

/** Says a command to the Redis of a URL, as far as a shell can, and prints its answers. */
const saying = (url: string, command: string): string => `
rest=${url}; rest=\${rest#redis://}
user=\${rest%%:*}; rest=\${rest#*:}; password=\${rest%%@*}; address=\${rest#*@}; address=\${address%/0}
printf 'AUTH %s %s\\r\\n%s\\r\\nQUIT\\r\\n' $user $password '${command}' | nc -w 5 \${address%:*} \${address#*:} 2>/dev/null | tr -d '\\r'`

/** An instance in a subnet that uses databases. */
export async function makeUser(tenant: TestTenant, plural: Plural, subnet_id: string, over: Json = {}) {
  const { id, host_id } = await tenant[plural].make({ nics: [{ subnet_id }], ...over })
  const run = (script: string): Promise<string> => outputOf(tenant, id, script, plural)
  return {
    id,
    host_id: host_id ?? '',
    plural,
    ...attachmentsOf(tenant.owner, plural, id),
    /** Runs a script in it. Throws if it fails. */
    run,
    /** The answer of the Redis that the URL leads to; that of its config var by default. Empty if it is not reached. */
    say: async (command: string, url = '$DATABASE_URL'): Promise<string> => {
      const [, ...answers] = (await run(`${saying(url, command)} || true`)).split('\n')
      return answers.slice(0, -1).join('\n')
    },
    /** Stops and starts it. */
    async restart(): Promise<void> {
      await (await tenant[plural].stop(id)).operation.success()
      await (await tenant[plural].start(id)).operation.success()
    },
    async delete(): Promise<void> {
      await (await tenant[plural].delete(id)).operation.success()
    },
  }
}

/** Those of attachments among the users of an engine. Throws unless `always` is one of them: the engine has not answered. */
function attachedAmong(said: string, always: string): string[] {
  const names = said.split('\n').map((line) => line.trim())
  if (!names.includes(always)) throw new Error(`the engine does not tell its users: ${said}`)
  return names.filter((name) => name.startsWith('k_'))
}

/** The users of attachments in a Redis. */
export const redisUsers = async (inside: ReturnType<typeof insideOf>, id: string): Promise<string[]> =>
  attachedAmong(await inside.runIn(id, 'redis-cli acl users'), 'default')

/** The users of attachments in a PostgreSQL. */
export const postgresqlUsers = async (inside: ReturnType<typeof insideOf>, id: string): Promise<string[]> =>
  attachedAmong(await inside.runIn(id, inPostgresql('SELECT rolname FROM pg_roles')), 'pg_monitor')

/** The paths of a tenant's instances on a host of this machine, from its namespaces. */
export async function pathsOn(hostId: string, attachmentIds: string[]): Promise<string[]> {
  const there: string[] = await readdir('/run/netns').catch(() => [])
  const names = new Names(hostId)
  return attachmentIds.filter((id) => there.includes(names.path(id)))
}

/** Everything that the platform's records have of the attachments of an instance. */
export async function recordsOf(tenant: TestTenant, instance_id: string) {
  const ids = await Path.distinct('_id', { tenant_id: tenant.id, instance_id })
  const attachments = await Attachment.find({ tenant_id: tenant.id, instance_id }).lean()
  const nics = await Nic.find({ tenant_id: tenant.id, instance_id: { $in: ids } }).lean()
  return { ids: attachments.map(({ _id }) => _id), paths: ids, nics: nics.length }
}
