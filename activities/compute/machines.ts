import { findInstance } from '../../models/compute/instance-kinds.ts'
import type { PlacedMachine } from '../../models/compute/machines.ts'
import { heldBy, placementTurn, reserveIfRoom } from '../../models/compute/reservations.ts'
import { transaction } from '../../models/database.ts'
import { permanently } from '../failures.ts'
import { instanceOf, makeInstanceActivities, type Move, type Placed } from './instances.ts'

export const makeMachineActivities = () => {
  const steps = makeInstanceActivities()
  return {
    ...steps,
    placeMachine: (id: string) => steps.placeInstance(id) as Promise<Placed<PlacedMachine>>,
    placeMachineElsewhere: (id: string, wantedHostId: string | null, operationId: string) =>
      steps.placeInstanceElsewhere(id, wantedHostId, operationId) as Promise<Move<PlacedMachine>>,

    /** It is where it was to go, and its record says so, whether or not it goes on there. */
    async landMachine(id: string, operationId: string): Promise<void> {
      await transaction(async () => {
        await steps.arriveInstance(id, operationId)
        const { host_id, tenant_id } = await heldBy(id)
        const { kind } = await instanceOf(id)
        await kind.model.updateOne(
          { _id: id, tenant_id, operation_id: operationId },
          { $set: { host_id, transfer_sealed: '-' } },
        )
      }, placementTurn)
    },

    /** Takes what it needs to run where it is; false where others were quicker. */
    async takeRoomToRun(id: string): Promise<boolean> {
      const { kind, instance } = await instanceOf(id)
      return permanently(() => reserveIfRoom(id, instance.tenant_id, kind.sizeOf(instance)))
    },

    /** Of what another was made, by this operation: it may be resumed again. */
    async letSourceGo(id: string, operationId: string): Promise<void> {
      const source = await findInstance(id)
      if (!source) return
      const { _id, tenant_id } = source.instance
      await source.kind.model.updateOne(
        { _id, tenant_id, operation_id: operationId },
        { $set: { operation_id: null } },
      )
    },
  }
}

export type MachineActivities = ReturnType<typeof makeMachineActivities>
