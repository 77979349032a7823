import { z } from 'zod'
import { InvalidInput } from '../../lib/problem.ts'
import { begin } from '../../models/acceptance.ts'
import { DeployServer, deployServerResource } from '../../models/deploy/deploy-servers.ts'
import {
  acceptService,
  acceptServiceUpdate,
  needFreePath,
  reviseService,
} from '../../models/deploy/service-acceptance.ts'
import {
  containerStates,
  serviceStatuses,
  stateOfContainer,
  statusOfService,
  urlsOfServices,
} from '../../models/deploy/service-status.ts'
import {
  openRevision,
  Service,
  type ServiceDocument,
  serviceOf,
  serviceResource,
} from '../../models/deploy/services.ts'
import { mine } from '../../models/resources.ts'
import { byOf } from '../accept.ts'
import { byId, commonView, Id, Name, resourceView, Tags, Timestamp, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { Envs } from './application-fields.ts'
import { inDeployServer } from './children.ts'
import { path as serverPath } from './deployments.ts'
import { scheduledTasksOf } from './scheduled-tasks.ts'
import { storagesOf } from './storages.ts'

const ContainerView = z.strictObject({
  name: z.string(),
  image: z.string(),
  state: z.enum(containerStates).describe('`completed`: a job that has done its work'),
  seen_at: Timestamp.nullable().describe('When it was last found running'),
  exit_code: z.int().nullable().describe('The last exit code; null: there is none'),
  memory_mib: z.int(),
  ports: z.array(z.strictObject({ port: z.int(), url: z.url().nullable() })),
})

const ServiceView = z
  .strictObject({
    ...resourceView,
    uuid: Id.describe('The same as `id`'),
    deploy_server_id: Id,
    type: z.string().nullable().describe('Its template; null: your own compose file'),
    status: z.enum(serviceStatuses),
    within_sec: z.int().describe('Seconds that its containers may take to start'),
    worker: z.string().nullable().describe('The worker that has its containers and volumes'),
    containers: z.array(ContainerView),
    volumes: z.array(z.string()).describe('The volumes of its compose file, and of former ones'),
  })
  .meta({ id: 'Service' })
type View = z.output<typeof ServiceView>

const Diff = z
  .strictObject({
    containers: z.array(
      z.strictObject({
        container: z.string(),
        change: z.enum(['added', 'removed', 'changed']),
        fields: z.array(z.string()).describe('The fields that differ, without their values'),
      }),
    ),
    volumes: z.strictObject({ added: z.array(z.string()), removed: z.array(z.string()) }),
  })
  .meta({ id: 'ServiceDiff' })
const ServiceChange = ServiceView.extend({ changes: Diff }).meta({ id: 'ServiceChange' })

/** The usual limit of bodies is too small for a text with its escapes. */
const bodyKib = 1024
const Text = z.string().min(1).describe('A compose file')
const WithinSec = z.int().min(10).max(3600).describe('Seconds that its containers may take to start')

const path = `${serverPath}/services`
const byService = z.strictObject({ id: Id, svc: Id })

function needContainer(owner: object, name: string): void {
  const { containers } = owner as ServiceDocument
  if (containers.some((one) => one.name === name)) return
  throw new InvalidInput(422, [{ pointer: '/container', message: 'is not a container of the service' }])
}

const owner = {
  kind: 'service',
  plural: 'services',
  words: 'a service',
  param: 'svc',
  field: 'service_id',
  find: serviceOf,
  needContainer,
} as const

/** The HTTP operations on services. */
export function makeServices({ appsDomain = 'localhost' }: OperationsContext) {
  async function toViews(services: ServiceDocument[]): Promise<View[]> {
    const [first] = services
    if (!first) return []
    const { tenant_id, deploy_server_id } = first
    const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
    const urlOf = server ? await urlsOfServices(server, appsDomain) : () => null
    const now = new Date()
    return services.map((service) => ({
      ...commonView(service),
      uuid: service._id,
      deploy_server_id: service.deploy_server_id,
      type: service.type,
      status: statusOfService(service, now),
      within_sec: service.within_sec,
      worker: service.volume_node,
      containers: service.containers.map((one) => ({
        name: one.name,
        image: one.image,
        state: stateOfContainer(service, one, now),
        seen_at: timeOrNull(one.seen_at),
        exit_code: one.ended?.exit_code ?? null,
        memory_mib: one.memory_mib,
        ports: one.ports.map(({ port, host }) => ({ port, url: urlOf(service, host) })),
      })),
      volumes: service.volumes,
    }))
  }

  async function viewOf(service: ServiceDocument): Promise<View> {
    const [view] = await toViews([service])
    return view as View
  }

  async function beginning(
    caller: Caller,
    { id, svc }: z.output<typeof byService>,
    verb: 'start' | 'stop' | 'restart' | 'delete',
    input: object = {},
  ) {
    const { _id } = await serviceOf(caller, id, svc)
    const { document, operation: accepted } = await begin(byOf(caller), serviceResource, _id, verb, { input })
    return { operation_id: accepted._id, body: await viewOf(document) }
  }

  return [
    list({
      path,
      permission: 'deploy_servers:read',
      summary: 'List the services of a deploy server',
      params: byId,
      model: Service,
      view: ServiceView,
      toViews,
      stored: { uuid: '_id', worker: 'volume_node' },
      scope: inDeployServer,
      without: ['revision_sealed', 'next_sealed', 'former_sealed'],
    }),

    operation({
      method: 'POST',
      path,
      permission: 'deploy_servers:manage',
      summary: 'Create a service from a template or a compose file, and start it',
      params: byId,
      body: z
        .strictObject({
          name: Name.describe('Unique in the deploy server; a part of its host names'),
          tags: Tags.default({}),
          type: z.string().max(63).optional().describe('The name of a template'),
          docker_compose: Text.optional(),
          envs: Envs.default({}).describe('Values of the variables in the compose file'),
          within_sec: WithinSec.default(300),
        })
        .refine(
          ({ type, docker_compose }) => (type === undefined) !== (docker_compose === undefined),
          'must have either a type or a docker_compose',
        ),
      responses: { 202: ServiceView },
      json_kib: bodyKib,
      handle: async ({ caller, params: { id }, body: { type, docker_compose, ...fields } }) => {
        const server = { id, domain: appsDomain }
        const asked = { ...fields, type, docker_compose }
        const { document, operation: accepted } = await acceptService(byOf(caller), server, asked)
        return { operation_id: accepted._id, body: await viewOf(document) }
      },
    }),

    operation({
      method: 'GET',
      path: `${path}/{svc}`,
      permission: 'deploy_servers:read',
      summary: 'Get a service with its containers and URLs',
      params: byService,
      responses: { 200: ServiceView },
      handle: async ({ caller, params: { id, svc } }) => viewOf(await serviceOf(caller, id, svc)),
    }),

    operation({
      method: 'GET',
      path: `${path}/{svc}/compose`,
      permission: 'deploy_servers:manage',
      summary: 'Get the compose file of a service with the values of its variables (audited)',
      params: byService,
      responses: {
        200: z.strictObject({
          docker_compose: z.string(),
          envs: Envs.describe('Values that the tenant set'),
          generated: Envs.describe('Values that the platform generated'),
        }),
      },
      reads_secret: true,
      handle: async ({ caller, params: { id, svc } }) => {
        const { tenant_id, next_sealed, revision_sealed } = await serviceOf(caller, id, svc)
        const sealed = next_sealed === '-' ? revision_sealed : next_sealed
        const { text, envs, generated } = await openRevision(tenant_id, sealed)
        return { docker_compose: text, envs, generated }
      },
    }),

    operation({
      method: 'PATCH',
      path: `${path}/{svc}`,
      permission: 'deploy_servers:manage',
      summary: 'Change the compose file or the variables of a service; a change that fails is rolled back',
      params: byService,
      body: z
        .strictObject({
          docker_compose: Text.optional(),
          envs: z
            .record(z.string(), z.string().nullable())
            .optional()
            .describe('Variables to set; null removes a variable, and all others stay'),
          dry_run: z.boolean().default(false).describe('Only report what would change'),
        })
        .refine(({ docker_compose, envs }) => docker_compose ?? envs, 'must have docker_compose or envs'),
      responses: { 200: ServiceChange, 202: ServiceChange },
      json_kib: bodyKib,
      handle: async ({ caller, params: { id, svc }, body: { dry_run, ...changes } }) => {
        const service = await serviceOf(caller, id, svc)
        const server = await mine(deployServerResource, caller, id)
        const { revision, diff } = await reviseService(service, server, appsDomain, changes)
        if (dry_run) return { ...(await viewOf(service)), changes: diff }
        const { document, operation: accepted } = await acceptServiceUpdate(byOf(caller), service, revision)
        return { operation_id: accepted._id, body: { ...(await viewOf(document)), changes: diff } }
      },
    }),

    operation({
      method: 'DELETE',
      path: `${path}/{svc}`,
      permission: 'deploy_servers:manage',
      summary:
        'Delete a service; the next service with its name gets its volumes unless `delete_volumes` is true',
      params: byService,
      query: z.strictObject({
        delete_volumes: z.stringbool().default(false).describe('Also destroy its volumes'),
      }),
      responses: { 202: ServiceView },
      handle: ({ caller, params, query }) => beginning(caller, params, 'delete', query),
    }),

    ...(['start', 'stop', 'restart'] as const).map((verb) =>
      operation({
        method: 'POST',
        path: `${path}/{svc}/${verb}`,
        permission: 'deploy_servers:manage',
        summary: {
          start: 'Start a stopped service',
          stop: 'Stop a service; its volumes stay',
          restart: 'Restart the containers of a service, in their order',
        }[verb],
        params: byService,
        responses: { 202: ServiceView },
        handle: ({ caller, params }) => beginning(caller, params, verb),
      }),
    ),

    ...storagesOf({
      ...owner,
      view: 'ServiceStorage',
      applied_by: 'restart',
      needFreePath: (found, ...at) => needFreePath(found as unknown as ServiceDocument, ...at),
    }),
    ...scheduledTasksOf({ ...owner, view: 'ServiceScheduled' }),
  ]
}
