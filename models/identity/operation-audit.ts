import type { OperationDocument } from '../operations.ts'
import { ApiClient } from './api-clients.ts'
import { type AuditEventDocument, storeAuditEvent } from './audit.ts'
import { deployLoginOf } from './deploy-credentials.ts'
import { User } from './users.ts'

type Actor = Pick<AuditEventDocument, 'actor_id' | 'actor_kind' | 'actor_name'>

/** Audits an operation that no HTTP request started, in the transaction that accepts it. */
export async function auditOperation(
  { tenant_id, id, parent }: { tenant_id: string; id: string | null; parent?: { id: string } },
  operation: OperationDocument,
): Promise<void> {
  const event: Omit<AuditEventDocument, '_id'> = {
    tenant_id,
    time: operation.created_at,
    ...(await actorOf(tenant_id, id)),
    action: `${operation.verb} ${operation.resource_kind}`,
    resource_kind: operation.resource_kind,
    resource_id: operation.resource_id,
    path: `/api/v1/operations/${operation._id}`,
    address: '',
    user_agent: '',
    status: 202,
    outcome: 'succeeded',
    problem_code: null,
    request_id: parent?.id ?? operation._id,
  }
  await storeAuditEvent(event)
}

/** A user of another tenant, such as an operator, is not named. */
async function actorOf(tenant_id: string, id: string | null): Promise<Actor> {
  const user = id && (await User.findOne({ _id: id, tenant_id }, { email: 1 }).lean())
  if (user) return { actor_id: user._id, actor_kind: 'user', actor_name: user.email }
  const client = id && (await ApiClient.findOne({ _id: id, tenant_id }, { name: 1 }).lean())
  if (client) return { actor_id: client._id, actor_kind: 'api_client', actor_name: client.name }
  const login = id && (await deployLoginOf(tenant_id, id))
  if (login) return { actor_id: id, actor_kind: 'deploy_server', actor_name: login }
  return { actor_id: 'platform', actor_kind: 'platform', actor_name: 'Keelson' }
}
