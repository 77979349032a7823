import type { Model } from 'mongoose'
import type { PlaceOnHost } from '../../lib/deploy-protocol.ts'
import { Application, findApplication } from './applications.ts'
import { replicasOfApplication } from './replicas.ts'
import { placesOfService } from './service-places.ts'
import { findService, Service } from './services.ts'

// What has scheduled tasks: applications and services of a deploy server.

/** What has scheduled tasks, as far as they need it. */
export interface TaskOwner {
  _id: string
  tenant_id: string
  deploy_server_id: string
}

interface OwnerKind {
  model: Model<TaskOwner>
  /** Matches owners that are not being deleted. */
  alive: object
  /** Matches owners whose tasks are begun. */
  running: object
  /** Where a command may run now, the best first. `container`: of those that have several. Empty: it does not run. */
  places: (id: string, container: string | null) => Promise<PlaceOnHost[]>
}

const modelOf = (model: unknown): Model<TaskOwner> => model as Model<TaskOwner>

export const taskOwners = {
  application: {
    model: modelOf(Application),
    alive: { status: 'active' },
    running: { status: 'active', current_id: { $ne: null } },
    places: async (id) => {
      const application = await findApplication(id)
      if (!application?.current_id) return []
      const replicas = await replicasOfApplication(application)
      return replicas.toSorted(
        (a, b) =>
          Number(b.deployment_id === application.current_id) -
          Number(a.deployment_id === application.current_id),
      )
    },
  },
  service: {
    model: modelOf(Service),
    alive: { status: { $ne: 'deleting' } },
    running: { status: 'running' },
    places: async (id, container) => {
      const service = await findService(id)
      const places = service ? await placesOfService(service) : []
      return places.filter(({ name }) => name === container)
    },
  },
} satisfies Record<string, OwnerKind>

export type TaskOwnerKind = keyof typeof taskOwners

export const taskOwnerKind = (kind: TaskOwnerKind): OwnerKind => taskOwners[kind]
