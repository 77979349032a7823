import { proxyActivities, sleep } from '@temporalio/workflow'
import type { EncryptionKeyActivities } from '../../activities/identity/encryption-key.ts'
import { durable } from '../durable.ts'

const { replaceDataKey, resealSecrets, forgetDataKeys } = proxyActivities<EncryptionKeyActivities>({
  startToCloseTimeout: '1 day', // there may be very many secrets; a retry continues
  heartbeatTimeout: '10 s', // detects a killed worker
  retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
})

export const rotateEncryptionKey = durable(
  async ({ operation_id, progress }) => {
    progress('creating a new data key')
    const { settledMs } = await replaceDataKey(operation_id)
    progress('waiting until every process uses the new key')
    await sleep(settledMs)
    progress('re-encrypting')
    await resealSecrets(operation_id)
    progress('removing old data keys')
    await forgetDataKeys()
    return { status: 'active' }
  },
  { final: true },
)
