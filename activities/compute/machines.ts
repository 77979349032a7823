import { findInstance } from '../../models/compute/instance-kinds.ts'
import type { PlacedMachine } from '../../models/compute/machines.ts'
import { makeInstanceActivities, type Move, type Placed } from './instances.ts'

export const makeMachineActivities = () => {
  const steps = makeInstanceActivities()
  return {
    ...steps,
    placeMachine: (id: string) => steps.placeInstance(id) as Promise<Placed<PlacedMachine>>,
    placeMachineElsewhere: (id: string, wantedHostId: string | null, operationId: string) =>
      steps.placeInstanceElsewhere(id, wantedHostId, operationId) as Promise<Move<PlacedMachine>>,

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
