import type { Doors } from '../doors.ts'
import type { ObservedInstances } from '../instances.ts'
import type { HostPart } from '../part.ts'

interface Parts {
  doors: Pick<Doors, 'keep' | 'close'>
  instances: Pick<ObservedInstances, 'found'>
}

/** The doors of runners of AI workflows, whose containers have no network. */
export const runnersPart = ({ doors, instances }: Parts): HostPart => ({
  name: 'runners',
  observed() {
    const found = instances
      .found()
      .flatMap((one) => (one.kind === 'container' && one.runner ? [{ id: one.id, runner: one.runner }] : []))
    void doors.keep(found)
  },
  close: doors.close,
})
