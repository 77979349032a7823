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
import { auditEvents } from './identity/audit.ts'
import { sessions } from './identity/sessions.ts'
import type { Operation } from './operation.ts'
import { makeOperations, type OperationsContext } from './operations.ts'

/** All HTTP operations: routes, document, permissions and tests come from this list. */
export const allOperations = (context: OperationsContext): Operation[] => [
  ...sessions,
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
  ...hostProtocol,
]
