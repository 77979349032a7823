import type { ChildActivities } from '../../activities/child-operations.ts'
import type { ConnectorActivities } from '../../activities/connectors/connectors.ts'
import type { EncryptionKeyActivities } from '../../activities/identity/encryption-key.ts'
import type { TenantActivities } from '../../activities/identity/tenants.ts'
import type { OperationActivities } from '../../activities/operations.ts'
import type { ToolProbeActivities } from '../../activities/tools/tool-probes.ts'
import type { Words } from './words.ts'

export const operationWords: Words<
  OperationActivities &
    ChildActivities &
    TenantActivities &
    EncryptionKeyActivities &
    ConnectorActivities &
    ToolProbeActivities
> = {
  noteStep: (_id, step) => `Show the step “${step}”`,
  awaitSuperseded: (id) => `Wait until the superseded operation ${id} has undone its steps`,
  awaitOperation: (id) => `Wait for the end of operation ${id}`,
  operationSucceeded: (id) => `Record that operation ${id} succeeded`,
  operationFailed: (id, state, { code }) => `Record that operation ${id} ${ended(state)}: ${code}`,

  acceptChild: (_parent, { kind, id }, verb) =>
    `Accept the operation ${verb} of ${id ? `${kind} ${id}` : `a new ${kind}`}`,
  childOutcome: (id) => `Read how operation ${id} ended`,
  cancelChild: (id) => `Cancel operation ${id}`,

  resourcesLeft: (tenantId) => `Look for what is left of tenant ${tenantId}`,
  removeTenantRecords: (tenantId) => `Remove the records of tenant ${tenantId}`,
  replaceDataKey: () => 'Make a new data key',
  resealSecrets: () => 'Encrypt all secrets with the new data key',
  forgetDataKeys: () => 'Remove data keys that nothing uses',

  lookAfterConnectors: () => 'Look after connectors that are due',

  microvmOfProbe: (id) => `Describe the microVM of probe ${id}`,
  placeOfProbe: (id) => `Find the host of probe ${id}`,
  noteFinding: (id) => `Record what probe ${id} found`,
}

const ended = (state: 'failed' | 'cancelled'): string => (state === 'failed' ? state : 'was cancelled')
