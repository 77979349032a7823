import { newId } from '../../lib/ids.ts'
import { type InputError, InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import { holdConnector } from '../connectors/uses.ts'
import { needAllowedImage } from '../compute/images.ts'
import { transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { Subnet } from '../network/subnets.ts'
import { outbound, urlFaults } from '../outbound.ts'
import { lockParent } from '../parents.ts'
import { named } from '../resources.ts'
import { type Definition, definitionOf, type GivenDefinition, originOf } from './definitions.ts'
import { opened, sealed, type ToolSecret } from './secrets.ts'
import { definition, stored, Tool, type ToolDocument, toolOf } from './tools.ts'
import { needUnused } from './uses.ts'

// How tools are made, changed and deleted, and the rules for what a tool may be.

/** A whole tool as it is given. Of a change: without `secret` and `env` the present ones stay. */
export interface GivenTool extends GivenDefinition {
  name: string
  description: string
  tags: Record<string, string>
  secret?: string | undefined
  env?: Record<string, string> | undefined
}

/** Throws InvalidInput, NameTaken, QuotaExceeded. */
export async function createTool(tenant_id: string, given: GivenTool): Promise<ToolDocument> {
  const fresh = definitionOf(given)
  const secret: ToolSecret = { secret: given.secret ?? null, env: given.env ?? {} }
  need(faultsOf(fresh, secret))
  const _id = newId()
  const its = { _id, tenant_id }
  const kept = await sealed(its, secret)
  const { name, description, tags } = given
  const about = { name, description, tags, ...stored(fresh), ...kept }
  return named('tool', name, () =>
    transaction(async () => {
      await lockParent(tenantResource, tenant_id, tenant_id)
      await needQuota(tenant_id, 'max_tools', await Tool.countDocuments({ tenant_id }))
      await needConnector(tenant_id, fresh)
      await needSubnet(tenant_id, fresh)
      const made = await new Tool({ ...its, ...about, version: 1, status: 'unchecked' }).save()
      return made.toObject()
    }, tenant_id),
  )
}

/**
 * Changes a tool to what `change` makes of it; it is called again if another change comes first. What a probe sees makes
 * it `unchecked`. Throws as `createTool`, and NotFound.
 */
export async function changeTool(
  by: { tenant_id: string },
  id: string,
  change: (present: ToolDocument) => GivenTool,
): Promise<ToolDocument> {
  for (let attempt = 0; attempt < attempts; attempt++) {
    const present = await toolOf(by, id)
    const changed = await changeOnce(present, change(present))
    if (changed) return changed
  }
  throw new Problem(409, 'state_conflict', 'The tool was changed meanwhile', 'Get it, and repeat the change')
}
const attempts = 5

async function changeOnce(present: ToolDocument, given: GivenTool): Promise<ToolDocument | null> {
  const { _id, tenant_id, version } = present
  const before = definition(present)
  const after = definitionOf(given)
  const had = await opened(present)
  const secret = secretAfter(after, given, had)
  need([...movesSecret(before, after, given, had), ...faultsOf(after, secret)])
  const isSame = JSON.stringify([after, secret]) === JSON.stringify([before, had])
  const reset: Partial<ToolDocument> = isSame
    ? {}
    : {
        ...(await sealed(present, secret)),
        version: version + 1,
        status: 'unchecked',
        last_probe: null,
        listing_json: null,
      }
  const { name, description, tags } = given
  const set = { name, description, tags, ...stored(after), ...reset }
  return named('tool', name, () =>
    transaction(async () => {
      if (after.auth.connector_id !== before.auth.connector_id) await needConnector(tenant_id, after)
      if (after.subnet_id !== before.subnet_id) await needSubnet(tenant_id, after)
      return Tool.findOneAndUpdate(
        { _id, tenant_id, version, updated_at: present.updated_at },
        { $set: set },
        { returnDocument: 'after' },
      ).lean()
    }, _id),
  )
}

/** What uses the tool keeps it, unless `force`. Throws NotFound, InUse. */
export const deleteTool = (
  { tenant_id }: { tenant_id: string },
  _id: string,
  { force }: { force: boolean },
): Promise<void> =>
  transaction(async () => {
    const gone = await Tool.findOneAndDelete({ _id, tenant_id }).lean()
    if (!gone) throw new NotFound('tool')
    if (!force) await needUnused(gone)
  }, _id)

/** A secret that is not needed any more does not stay. */
const secretAfter = (after: Definition, given: GivenTool, had: ToolSecret): ToolSecret => ({
  secret: takesSecret(after) ? (given.secret ?? had.secret) : (given.secret ?? null),
  env: after.command === null ? (given.env ?? {}) : (given.env ?? had.env),
})

/**
 * A secret that its owner gave for one place does not go to another by a change of somebody who does not know it: it must
 * be given again.
 */
function movesSecret(before: Definition, after: Definition, given: GivenTool, had: ToolSecret): InputError[] {
  const faults: InputError[] = []
  const keepsSecret = had.secret !== null && given.secret === undefined && takesSecret(after)
  if (keepsSecret && (originOf(before) !== originOf(after) || before.auth.type !== after.auth.type))
    faults.push({
      pointer: '/secret',
      message: 'must be given again for another origin or another type of auth',
    })
  const keepsEnv = Object.keys(had.env).length > 0 && given.env === undefined && after.command !== null
  if (keepsEnv && runs(before) !== runs(after))
    faults.push({
      pointer: '/env',
      message: 'must be given again for another command, other arguments, another image or subnet',
    })
  return faults
}

const runs = ({ command, args, image, subnet_id }: Definition): string =>
  JSON.stringify([command, args, image, subnet_id])

/** Whether the auth is by a secret of the tool's own. */
const takesSecret = ({ auth: { type, connector_id } }: Definition): boolean =>
  type === 'header' || type === 'basic' || (type === 'bearer' && connector_id === null)

function faultsOf(of: Definition, { secret }: ToolSecret): InputError[] {
  const faults: InputError[] = []
  const { url, auth } = of
  const urlFault = url === null ? null : outbound().faultOf(url)
  if (urlFault) faults.push({ pointer: '/url', message: `${urlFault}: ${urlFaults[urlFault]}` })
  if (takesSecret(of) && secret === null)
    faults.push({ pointer: '/secret', message: `is required for the auth ${auth.type}` })
  if (!takesSecret(of) && secret !== null)
    faults.push({ pointer: '/secret', message: 'is only for an auth with the tool’s own secret' })
  if (auth.type !== 'none' && !urlFault) {
    const fault = placeFault(of)
    if (fault) faults.push({ pointer: url === null ? '/document' : '/url', message: fault })
  }
  return faults
}

/** Why a credential must not go where the definition says; null if it may. */
export function placeFault(of: Definition): string | null {
  const origin = originOf(of)
  if (origin === null) return 'names no server to which the credential may go'
  const isClear = origin.startsWith('http:') && !outbound().isExempt(origin)
  return isClear ? 'must be https, since a credential goes there' : null
}

/** Throws InvalidInput. Runs in the transaction that makes the tool use the connector. */
async function needConnector(
  tenant_id: string,
  { auth: { connector_id }, url, document }: Definition,
): Promise<void> {
  if (connector_id === null) return
  const pointer = '/auth/connector_id'
  const connector = await holdConnector(tenant_id, connector_id).catch((error: unknown) => {
    throw error instanceof NotFound
      ? new InvalidInput(422, [{ pointer, message: 'no such connector' }])
      : error
  })
  if (connector.kind === 'none') need([{ pointer, message: 'has no credential' }])
  if (URL.parse(connector.base_url)?.origin !== originOf({ url, document }))
    need([{ pointer, message: 'is for another origin than the tool' }])
}

/** Throws InvalidInput. The subnet may be deleted later: probes then say so. */
async function needSubnet(tenant_id: string, { subnet_id, image }: Definition): Promise<void> {
  needAllowedImage(image ?? undefined)
  if (subnet_id === null || (await Subnet.exists({ _id: subnet_id, tenant_id, managed_by: null }))) return
  need([{ pointer: '/subnet_id', message: 'no such subnet' }])
}

function need(faults: InputError[]): void {
  if (faults.length) throw new InvalidInput(422, faults)
}
