import { readSettings, type Settings } from '../config.ts'
import { connectDatabase, disconnectDatabase, ensureIndexes } from '../models/database.ts'
import '../models/index.ts'
import { keepActivity } from '../models/activity.ts'
import { Host, newEnrolToken } from '../models/compute/hosts.ts'
import { ensureBuiltInRoles } from '../models/identity/roles.ts'
import { keepAuditEvents } from '../models/identity/audit.ts'
import { ensureEncryptionKey } from '../models/identity/encryption-key.ts'
import { ensureSigningKey } from '../models/identity/signing-keys.ts'
import { createTenant } from '../models/identity/tenants.ts'
import { User } from '../models/identity/users.ts'
import { everyTenant } from '../models/tenant-scope.ts'
import { ensureNamespace } from './lib/namespace.ts'

// Prepares MongoDB and Temporal, and makes the first tenant with its owner. Safe to repeat: existing parts stay. Prints
// one line of JSON, with the password and the hosts' tokens only if they are new.

const settings = readSettings('setup')
await connectDatabase(settings)
await ensureIndexes()
await keepAuditEvents(settings.KEELSON_AUDIT_DAYS)
await keepActivity(settings.KEELSON_ACTIVITY_DAYS)
await ensureSigningKey()
await ensureEncryptionKey()
await ensureBuiltInRoles()
await ensureNamespace(settings)
const owner = await ensureOwner(settings)
const host_token = await ensureHost(settings.KEELSON_HOST_NAME)
const further_tokens: Record<string, string | null> = {}
for (const name of settings.KEELSON_FURTHER_HOST_NAMES) further_tokens[name] = await ensureHost(name)
console.log(JSON.stringify({ ...owner, host_token, further_tokens }))
await disconnectDatabase()

interface Owner {
  tenant: string
  email: string
  password: string | null
}

/** The first owner also runs the platform, with the operator role. */
async function ensureOwner({
  KEELSON_OWNER_EMAIL,
  KEELSON_OWNER_PASSWORD,
}: Settings<'setup'>): Promise<Owner> {
  const first = await User.findOne({ roles: 'operator' }).setOptions(everyTenant).lean()
  if (first) return { tenant: first.tenant_id, email: first.email, password: null }
  const made = await createTenant(
    { name: 'default' },
    {
      email: KEELSON_OWNER_EMAIL,
      name: 'Owner',
      password: KEELSON_OWNER_PASSWORD ?? undefined,
      roles: ['operator'],
    },
  )
  const password = KEELSON_OWNER_PASSWORD ?? made.password
  return { tenant: made.tenant._id, email: made.owner.email, password }
}

/** A token for the host of this name, unless it has enrolled. */
async function ensureHost(name: string): Promise<string | null> {
  const host = await Host.findOne({ name }).lean()
  if (host?.public_key) return null
  const { token, ...kept } = newEnrolToken()
  await Host.findOneAndUpdate({ name }, { $set: { ...kept, status: 'pending' } }, { upsert: true })
  return token
}
