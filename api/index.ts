import {
  containerActivity,
  containerLogs,
  createContainer,
  deleteContainer,
  getContainer,
  listContainers,
  startContainer,
  stopContainer,
  updateContainer,
} from './compute/containers.ts'
import { hostProtocol } from './compute/host-protocol.ts'
import { hosts } from './compute/hosts.ts'
import { account } from './identity/account.ts'
import { roles } from './identity/roles.ts'
import { auditEvents } from './identity/audit.ts'
import { sessions } from './identity/sessions.ts'
import { makeApiClients } from './identity/api-clients.ts'
import { makeOauth } from './identity/oauth.ts'
import { users } from './identity/users.ts'
import { limits } from './identity/limits.ts'
import { tenants } from './identity/tenants.ts'
import type { Operation } from './operation.ts'
import { makeOperations, type OperationsContext } from './operations.ts'

/** All HTTP operations: routes, document, permissions and tests come from this list. */
export const allOperations = (context: OperationsContext): Operation[] => [
  ...sessions,
  ...account,
  ...users,
  ...makeApiClients(context),
  ...makeOauth(context),
  ...roles,
  ...auditEvents,
  listContainers,
  createContainer,
  getContainer,
  updateContainer,
  deleteContainer,
  startContainer,
  stopContainer,
  containerLogs,
  containerActivity,
  ...makeOperations(context),
  ...hosts,
  ...limits,
  ...tenants,
  ...hostProtocol,
]
