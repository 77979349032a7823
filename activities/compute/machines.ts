import type { MachineKind } from '../../drivers/machines.ts'
import { instanceKinds } from '../../models/compute/instance-kinds.ts'
import { heldBy, placementTurn, reserveIfRoom } from '../../models/compute/reservations.ts'
import { transaction } from '../../models/database.ts'
import { arriveTogether } from '../../models/storage/moves.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { permanently } from '../failures.ts'
import { instanceOf } from './instances.ts'

export const makeMachineActivities = () => ({
  /** Completes the move and records the new host, whether or not the machine can resume there. */
  async landMachine(kindName: MachineKind, id: string, operationId: string): Promise<void> {
    await transaction(async () => {
      await arriveTogether(operationId, id)
      const { host_id, tenant_id } = await heldBy(id)
      const { kind } = await instanceOf(kindName, id)
      await kind.model.updateOne(
        { _id: id, tenant_id, operation_id: operationId },
        { $set: { host_id, transfer_sealed: '-' } },
      )
    }, placementTurn)
  },

  /** Reserves what the machine needs to run on its host; false if others have taken the room. */
  async takeRoomToRun(kindName: MachineKind, id: string): Promise<boolean> {
    const { kind, instance } = await instanceOf(kindName, id)
    return permanently(() => reserveIfRoom(id, instance.tenant_id, kind.sizeOf(instance)))
  },

  /** Ends this operation's hold on the source of a fork, which can then resume again. */
  async letSourceGo(kindName: MachineKind, id: string, operationId: string): Promise<void> {
    const { model } = instanceKinds[kindName]
    const taken = { _id: id, operation_id: operationId }
    await model.updateOne(taken, { $set: { operation_id: null } }).setOptions(everyTenant)
  },
})

export type MachineActivities = ReturnType<typeof makeMachineActivities>
