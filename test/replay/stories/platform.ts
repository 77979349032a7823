import { connectorSchedule } from '../../../worker/schedules.ts'
import { allHosts } from '../../support/hosts.ts'
import { makeOperator, makeTenant } from '../../support/tenants.ts'
import { looked, type Stories } from '../world.ts'

export const platformStories: Stories = {
  'evacuateHost.active': async () => {
    const [, second] = await allHosts()
    const operator = await makeOperator()
    return (await operator.begin('POST', `/api/v1/platform/hosts/${second?.id}/evacuate`)).operation
  },
  'deleteTenant.deleted': async () => {
    const { id, containers: its } = await makeTenant()
    await its.make({ start: false })
    const operator = await makeOperator()
    return (await operator.begin('DELETE', `/api/v1/platform/tenants/${id}`)).operation
  },
  lookAfterConnectors: () => looked(connectorSchedule),
  'rotateEncryptionKey.active': async () =>
    (await (await makeOperator()).begin('POST', '/api/v1/platform/encryption-key/rotate')).operation,
}
