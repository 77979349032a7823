import { isStream, type Operation, successOf } from '../operation.ts'

// The names of operations, as an SDK has them: a verb and the thing.

/** Those that the rule below names badly. */
const named: Record<string, string> = {
  'POST /api/v1/auth/login': 'logIn',
  'POST /api/v1/auth/logout': 'logOut',
  'POST /api/v1/auth/accept-invitation': 'acceptInvitation',
  'POST /api/v1/auth/password-reset': 'requestPasswordReset',
  'POST /api/v1/auth/password-reset/confirm': 'resetPassword',
  'POST /api/v1/account/password': 'changePassword',
  'POST /api/v1/account/authenticator': 'beginAuthenticator',
  'POST /api/v1/account/authenticator/confirm': 'confirmAuthenticator',
  'POST /api/v1/users': 'inviteUser',
  'POST /api/v1/users/{id}/invite': 'inviteUserAgain',
  'POST /api/v1/api-clients/{id}/rotate': 'rotateApiClientSecret',
  'POST /api/v1/api-clients/{id}/revoke-tokens': 'revokeApiClientTokens',
  'POST /oauth/token': 'requestToken',
  'GET /.well-known/jwks.json': 'getTokenKeys',
  'GET /.well-known/oauth-authorization-server': 'getTokenServer',
  'POST /api/v1/roles/{name}/permissions': 'grantRolePermission',
  'DELETE /api/v1/roles/{name}/permissions/{permission}': 'revokeRolePermission',
  'POST /api/v1/platform/encryption-key/rotate': 'rotateEncryptionKey',
  'POST /api/v1/platform/signing-keys/rotate': 'rotateSigningKey',
  'POST /api/v1/disks/{id}/snapshots/{name}/restore': 'restoreDiskSnapshot',
  'POST /api/v1/subnets/{id}/dhcp-config': 'attachDhcpConfig',
  'DELETE /api/v1/subnets/{id}/dhcp-config': 'detachDhcpConfig',
  'POST /api/v1/deploy-servers/{id}/machines/{machine}/replace': 'replaceDeployServerMachine',
  'POST /api/v1/deploy-servers/{id}/credentials/rotate': 'rotateDeployServerCredentials',
  'POST /api/v1/deploy-servers/{id}/login': 'logInToDeployServer',
  'POST /api/v1/deploy-servers/{id}/logout': 'logOutOfDeployServer',
  'POST /api/v1/deploy-servers/{id}/applications/{app}/envs': 'setApplicationEnvs',
  'POST /api/v1/deploy-servers/{id}/artifacts': 'createArtifact',
  'POST /api/v1/deploy-servers/{id}/databases/{db}/backup-executions': 'backUpDatabase',
  'GET /api/v1/deploy-servers/{id}/deployments/{deployment}/log': 'getDeploymentLog',
  'POST /api/v1/deploy-servers/{id}/event-subscriptions/{subscription}/rotate-secret':
    'rotateEventSubscriptionSecret',
  'POST /api/v1/connectors/{id}/default': 'makeConnectorDefault',
  'POST /api/v1/connectors/import': 'importConnector',
  'POST /api/v1/connectors/device/start': 'startDeviceLogin',
  'POST /api/v1/connectors/device/poll': 'pollDeviceLogin',
  'POST /api/v1/connectors/oauth/start': 'startOauthLogin',
  'POST /api/v1/connectors/oauth/complete': 'completeOauthLogin',
  'GET /api/v1/rag': 'getRagStore',
  'POST /api/v1/rag/enable': 'enableRagStore',
  'POST /api/v1/rag/disable': 'disableRagStore',
  'POST /api/v1/rag/rotate': 'rotateRagCredentials',
  'POST /api/v1/rag/restore': 'restoreRagStore',
  'PUT /api/v1/rag/snapshots': 'setRagSnapshotRules',
  'POST /api/v1/rag/snapshots': 'createRagSnapshot',
  'POST /api/v1/workflows/{id}/canary': 'setWorkflowCanary',
  'DELETE /api/v1/workflows/{id}/canary': 'stopWorkflowCanary',
  'POST /api/v1/workflows/{id}/canary/promote': 'promoteWorkflowCanary',
  'POST /api/v1/workflows/{id}/evals': 'putWorkflowEval',
  'PUT /api/v1/workflows/{id}/eval-gate': 'setWorkflowEvalGate',
  'POST /api/v1/workflows/{id}/evals/run': 'runWorkflowEvals',
  'POST /api/v1/workflows/{id}/webhook/rotate': 'rotateWorkflowWebhook',
  'POST /hooks/workflows/{id}': 'callWorkflowWebhook',
  'PUT /api/v1/workflows/{id}/schedule': 'setWorkflowSchedule',
  'POST /api/v1/workflows/{id}/runs/{run}/nodes/{node}/decision': 'decideWorkflowRunNode',
  'GET /api/v1/workflows/{id}/runs/{run}/stream': 'streamWorkflowRun',
  'PUT /api/v1/platform/tenants/{id}/limits': 'setTenantLimits',
  'GET /api/v1/platform/operations': 'listPlatformOperations',
  'POST /api/v1/mailsvc/webhook': 'receiveMailNotification',
}

/** What is attached and detached rather than created and deleted. */
const attached = /\/(disks|nics|attachments\/database)(\/\{\w+\})?$/
const onInstance = /^\/api\/v1\/(containers|microvms|vms)\//

/** `GET /api/v1/containers/{id}/logs` → `getContainerLogs`. */
export function operationIdOf(operation: Operation, collections: ReadonlySet<string>): string {
  const { method, path } = operation
  const own = named[`${method} ${path}`]
  if (own) return own
  const parts = path
    .replace(/^\/api\/v1\/(platform\/)?/, '')
    // What is below a deploy server has a name of its own.
    .replace(/^deploy-servers\/\{id\}\/(?!(?:activity|credentials)\b)/, '')
    .replace('attachments/database', 'databases')
    .split('/')
  const isItem = parts.at(-1)?.startsWith('{') === true
  const words = parts.filter((part) => !part.startsWith('{'))
  const parents = words
    .slice(0, -1)
    .map((word) => pascal(singular(word)))
    .join('')
  const last = words.at(-1) ?? ''
  const one = parents + pascal(singular(last))
  if (method === 'GET') {
    if (isItem) return `get${one}`
    return isList(operation) ? `list${parents}${pascal(last)}` : `get${parents}${pascal(last)}`
  }
  if (onInstance.test(path) && attached.test(path)) return `${method === 'POST' ? 'attach' : 'detach'}${one}`
  if (method === 'DELETE') return `delete${one}`
  if (method !== 'POST') return isItem ? `update${one}` : `set${parents}${pascal(last)}`
  return collections.has(path) ? `create${one}` : `${camel(last)}${parents}`
}

/** The paths of lists: a POST there creates. */
export const collectionsOf = (operations: Operation[]): ReadonlySet<string> =>
  new Set(operations.filter((one) => one.method === 'GET' && isList(one)).map(({ path }) => path))

function isList(operation: Operation): boolean {
  const { body } = successOf(operation)
  return body !== null && !isStream(body) && 'shape' in body && 'items' in (body.shape as object)
}

const singular = (word: string): string => word.replace(/ies$/, 'y').replace(/([^s])s$/, '$1')
const pascal = (word: string): string =>
  word
    .split(/[^A-Za-z0-9]+/)
    .map((part) => part.charAt(0).toUpperCase() + part.slice(1))
    .join('')
const camel = (word: string): string => pascal(word).replace(/^./, (first) => first.toLowerCase())
