import type { PlacedContainer } from '../../models/compute/containers.ts'
import { makeInstanceActivities, type Move, type Placed } from './instances.ts'

/** The steps of every instance by the names that containers' histories have, from before there were other kinds. */
export const makeContainerActivities = () => {
  const steps = makeInstanceActivities()
  return {
    placeContainer: (id: string) => steps.placeInstance(id) as Promise<Placed<PlacedContainer>>,
    placeContainerElsewhere: (id: string, wantedHostId: string | null, operationId: string) =>
      steps.placeInstanceElsewhere(id, wantedHostId, operationId) as Promise<Move<PlacedContainer>>,
    arriveContainer: steps.arriveInstance,
    stayContainer: steps.stayInstance,
    releaseContainer: (id: string) => steps.releaseInstance(id),
    runningContainer: (id: string, changed: string[]) => steps.runningInstance(id, changed),
  }
}

export type ContainerActivities = ReturnType<typeof makeContainerActivities>
