import { z } from 'zod'
import { LogLine } from '../../lib/host-protocol.ts'
import { NotFound, PermissionDenied, StateConflict } from '../../lib/problem.ts'
import { Activity, type ActivityDocument } from '../../models/activity.ts'
import {
  Container,
  type ContainerDocument,
  containerResource,
  containerStates,
  sealConfigVars,
} from '../../models/compute/containers.ts'
import { reserve, resize } from '../../models/compute/reservations.ts'
import { sizeOf } from '../../models/identity/tenants.ts'
import { begin, create } from '../accept.ts'
import { byId, Id, Name, resourceView, Tags, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation, stream } from '../operation.ts'
import { askHost } from './data-plane.ts'
import { sendLogs } from './logs.ts'

const PortNumber = z.int().min(1).max(65535)
const Protocol = z.enum(['tcp', 'udp'])
const Arguments = z.array(z.string().max(4096)).max(256)

const HealthCheck = z.strictObject({
  command: Arguments.min(1),
  interval_sec: z.int().min(1).max(3600).default(10),
  timeout_sec: z.int().min(1).max(600).default(5),
  retries: z.int().min(1).max(100).default(3),
  start_period_sec: z.int().min(0).max(3600).default(0),
})

const ConfigVars = z
  .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/), z.string().max(32_768))
  .refine((vars) => Object.keys(vars).length <= 200, 'at most 200 config vars')

const Ports = z
  .array(
    z.strictObject({
      container_port: PortNumber,
      protocol: Protocol.default('tcp'),
      host_port: z
        .int()
        .min(1024)
        .max(65535)
        .nullable()
        .default(null)
        .describe('Without it the host chooses one and keeps it'),
    }),
  )
  .max(32)
  .refine(
    (ports) => unique(ports.map((port) => `${port.container_port}/${port.protocol}`)),
    'a port is published twice',
  )
  .refine(
    (ports) =>
      unique(ports.filter((port) => port.host_port).map((port) => `${port.host_port}/${port.protocol}`)),
    'a host port is taken twice',
  )

/** What can be changed later. */
const changeable = {
  image: z.string().regex(/^[\w][\w.\-/:@]{0,254}$/, 'must be an image reference'),
  command: Arguments,
  entrypoint: Arguments,
  cpu_cores: z.number().min(0.1).max(512).multipleOf(0.01),
  memory_mib: z.int().min(8).max(4_194_304),
  restart_policy: z.enum(['always', 'on_failure', 'never']),
  ports: Ports,
  health_check: HealthCheck.nullable(),
  log_cap_mib: z.int().min(1).max(1024),
  tags: Tags,
}

const CreateContainer = z.strictObject({
  ...changeable,
  name: Name,
  command: Arguments.default([]).describe('Without it, the image’s own'),
  entrypoint: Arguments.default([]).describe('Without it, the image’s own'),
  restart_policy: changeable.restart_policy.default('always'),
  ports: Ports.default([]),
  health_check: HealthCheck.nullable().default(null),
  log_cap_mib: changeable.log_cap_mib.default(64),
  tags: Tags.default({}),
  config_vars: ConfigVars.default({}).describe('Environment variables'),
  host_id: Id.nullable().default(null).describe('For operators: the host to be on'),
  start: z.boolean().default(true),
})

const UpdateContainer = z.strictObject(changeable).partial()

const ContainerView = z
  .strictObject({
    ...resourceView,
    status: z.enum(containerStates.all),
    desired_state: z.enum(['running', 'stopped']),
    image: z.string(),
    image_digest: z.string().nullable(),
    command: z.array(z.string()),
    entrypoint: z.array(z.string()),
    cpu_cores: z.number(),
    memory_mib: z.int(),
    restart_policy: changeable.restart_policy,
    ports: z.array(
      z.strictObject({
        container_port: PortNumber,
        protocol: Protocol,
        host_port: PortNumber.nullable(),
        host_address: z.string().nullable(),
      }),
    ),
    health_check: HealthCheck.nullable(),
    log_cap_mib: z.int(),
    host_id: Id.nullable(),
    pending_changes: z.array(z.string()).describe('Fields that take effect at the next start'),
    exit_code: z.int().nullable(),
    restart_count: z.int(),
    started_at: Timestamp.nullable(),
    health: z.enum(['none', 'starting', 'healthy', 'unhealthy']),
  })
  .meta({ id: 'Container' })

const containers = {
  resource: containerResource,
  view: ContainerView,
  toView: (container: ContainerDocument): z.output<typeof ContainerView> => ({
    id: container._id,
    tenant_id: container.tenant_id,
    name: container.name,
    tags: container.tags,
    status: container.status as z.output<typeof ContainerView>['status'],
    status_reason: container.status_reason,
    operation_id: container.operation_id,
    desired_state: container.desired_state,
    image: container.image,
    image_digest: container.image_digest,
    command: container.command,
    entrypoint: container.entrypoint,
    cpu_cores: container.cpu_cores,
    memory_mib: container.memory_mib,
    restart_policy: container.restart_policy,
    ports: container.bindings,
    health_check: container.health_check,
    log_cap_mib: container.log_cap_mib,
    host_id: container.host_id,
    pending_changes: container.pending_changes,
    exit_code: container.exit_code,
    restart_count: container.restart_count,
    started_at: timeOrNull(container.started_at),
    health: container.health,
    created_at: time(container.created_at),
    updated_at: time(container.updated_at),
  }),
}

async function containerOf({ tenant_id }: Caller, id: string): Promise<ContainerDocument> {
  const container = await Container.findOne({ _id: id, tenant_id }).lean()
  if (!container) throw new NotFound('container')
  return container
}

export const listContainers = list({
  path: '/api/v1/containers',
  permission: 'containers:read',
  summary: 'List containers',
  model: Container,
  view: ContainerView,
  toView: containers.toView,
  stored: { ports: 'bindings' },
  scope: ({ tenant_id }) => ({ tenant_id }),
})

export const createContainer = operation({
  method: 'POST',
  path: '/api/v1/containers',
  permission: 'containers:create',
  summary: 'Create a container, and start it',
  body: CreateContainer,
  responses: { 202: ContainerView },
  handle: async ({ caller, body: { start, config_vars, host_id, ...spec } }) => {
    if (host_id && !caller.permissions.has('platform:hosts')) throw new PermissionDenied('platform:hosts')
    const fields = {
      ...spec,
      image_digest: null,
      config_vars_sealed: sealConfigVars(caller.tenant_id, config_vars),
      desired_state: start ? ('running' as const) : ('stopped' as const),
      host_id: null,
      wanted_host_id: host_id,
      bindings: spec.ports.map((port) => ({ ...port, host_address: null })),
      pending_changes: [],
      exit_code: null,
      restart_count: 0,
      started_at: null,
      health: 'none' as const,
    }
    return create(caller, containers, fields, {
      input: { start },
      reserve: (id) => reserve(id, caller.tenant_id, sizeOf(spec)),
    })
  },
})

export const getContainer = operation({
  method: 'GET',
  path: '/api/v1/containers/{id}',
  permission: 'containers:read',
  summary: 'Get a container',
  params: byId,
  responses: { 200: ContainerView },
  handle: async ({ caller, params }) => containers.toView(await containerOf(caller, params.id)),
})

export const updateContainer = operation({
  method: 'PUT',
  path: '/api/v1/containers/{id}',
  permission: 'containers:update',
  summary: 'Change a container: size at once, the rest at the next start',
  params: byId,
  body: UpdateContainer,
  responses: { 202: ContainerView },
  handle: ({ caller, params, body }) =>
    begin(caller, containers, params.id, 'update', {
      input: { changes: body },
      reserve: ({ cpu_cores, memory_mib }) => {
        const size = { cpu_cores: body.cpu_cores ?? cpu_cores, memory_mib: body.memory_mib ?? memory_mib }
        return resize(params.id, caller.tenant_id, sizeOf(size))
      },
    }),
})

export const deleteContainer = operation({
  method: 'DELETE',
  path: '/api/v1/containers/{id}',
  permission: 'containers:delete',
  summary: 'Delete a container, whatever is being done with it',
  params: byId,
  responses: { 202: ContainerView },
  handle: ({ caller, params }) => begin(caller, containers, params.id, 'delete'),
})

export const startContainer = operation({
  method: 'POST',
  path: '/api/v1/containers/{id}/start',
  permission: 'containers:update',
  summary: 'Start a stopped container',
  params: byId,
  responses: { 202: ContainerView },
  handle: ({ caller, params }) =>
    begin(caller, containers, params.id, 'start', {
      set: { desired_state: 'running' },
      reserve: (container) => reserve(params.id, caller.tenant_id, sizeOf(container)),
    }),
})

export const stopContainer = operation({
  method: 'POST',
  path: '/api/v1/containers/{id}/stop',
  permission: 'containers:update',
  summary: 'Stop a running container; its ports and data stay',
  params: byId,
  body: z
    .strictObject({ grace_sec: z.int().min(0).max(600).default(10).describe('Seconds until it is killed') })
    .default({ grace_sec: 10 }),
  responses: { 202: ContainerView },
  handle: ({ caller, params, body }) =>
    begin(caller, containers, params.id, 'stop', {
      input: body,
      set: { desired_state: 'stopped' },
    }),
})

const Flag = z.enum(['true', 'false']).transform((text) => text === 'true')

export const containerLogs = operation({
  method: 'GET',
  path: '/api/v1/containers/{id}/logs',
  permission: 'containers:read',
  summary: 'What a container wrote to stdout and stderr',
  params: byId,
  query: z.strictObject({
    lines: z.coerce.number().int().min(0).max(100_000).optional().describe('The last so many'),
    since: z.iso.datetime({ offset: true }).optional(),
    follow: Flag.default(false).describe('Server-sent events, until the client goes'),
    timestamps: Flag.default(true),
  }),
  responses: { 200: stream('application/x-ndjson', LogLine) },
  handle: async ({ caller, params, query, http: { response } }) => {
    const container = await containerOf(caller, params.id)
    if (!container.host_id) throw new StateConflict('read logs', container.status)
    const gone = new AbortController()
    response.once('close', () => gone.abort())
    const ask = new URLSearchParams()
    if (query.lines !== undefined) ask.set('lines', String(query.lines))
    if (query.since) ask.set('since', query.since)
    if (query.follow) ask.set('follow', 'true')
    await sendLogs(await askHost(container.host_id, params.id, 'logs', ask, gone.signal), response, query)
  },
})

const ActivityView = z.strictObject({
  time: Timestamp,
  kind: z.string(),
  message: z.string(),
  data: z.record(z.string(), z.unknown()),
})

export const containerActivity = list({
  path: '/api/v1/containers/{id}/activity',
  permission: 'containers:read',
  summary: 'What happened to a container that nobody asked for',
  params: byId,
  model: Activity,
  view: ActivityView,
  toView: (event: ActivityDocument) => ({
    time: time(event.time),
    kind: event.kind,
    message: event.message,
    data: event.data,
  }),
  sortBy: 'time',
  scope: async (caller, { id }) => ({
    tenant_id: caller.tenant_id,
    resource_id: (await containerOf(caller, id))._id,
  }),
})

const unique = (values: string[]): boolean => new Set(values).size === values.length
