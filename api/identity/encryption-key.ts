import { z } from 'zod'
import { keysInUse } from '../../models/data-keys.ts'
import {
  acceptRotation,
  type EncryptionKeyDocument,
  encryptionKeyStates,
  getEncryptionKey,
} from '../../models/identity/encryption-key.ts'
import { accepting } from '../accept.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'

const EncryptionKeyView = z
  .strictObject({
    id: Id,
    status: z.enum(encryptionKeyStates.all),
    status_reason: z.string().nullable().describe('Why the last rotation failed'),
    operation_id: Id.nullable().describe('The open operation'),
    data_key_id: Id.describe('The data key that encrypts new secrets'),
    created_at: Timestamp.describe('When the data key was created'),
    master_key_ids: z.array(z.string()).describe('Ids of the master keys that are still needed'),
  })
  .meta({ id: 'EncryptionKey' })

const viewWith =
  ({ current, masterKeyIds }: Awaited<ReturnType<typeof keysInUse>>) =>
  (key: EncryptionKeyDocument): z.output<typeof EncryptionKeyView> => ({
    id: key._id,
    status: key.status,
    status_reason: key.status_reason,
    operation_id: key.operation_id,
    data_key_id: current._id,
    created_at: time(current.created_at),
    master_key_ids: masterKeyIds,
  })

export const encryptionKey = [
  operation({
    method: 'GET',
    path: '/api/v1/platform/encryption-key',
    permission: 'platform:operations',
    summary: 'Get the ids of the encryption keys in use',
    responses: { 200: EncryptionKeyView },
    handle: async () => viewWith(await keysInUse())(await getEncryptionKey()),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/encryption-key/rotate',
    permission: 'platform:operations',
    summary: 'Rotate the data key: re-encrypt all secrets with a new one, wrapped by the first master key',
    responses: { 202: EncryptionKeyView },
    handle: async ({ caller }) => {
      const toView = viewWith(await keysInUse())
      return accepting(caller, toView, (by) => acceptRotation(by))
    },
  }),
]
