import { z } from 'zod'
import { Enrolled, Enrolment, HostReport, ReportAnswer } from '../../lib/host-protocol.ts'
import { NotFound, Unauthenticated } from '../../lib/problem.ts'
import { Container, openConfigVars } from '../../models/compute/containers.ts'
import { enrolHost } from '../../models/compute/hosts.ts'
import { Reservation } from '../../models/compute/reservations.ts'
import { observe } from '../../models/compute/observe.ts'
import { publicKeys } from '../../models/identity/signing-keys.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { byId, Id } from '../fields.ts'
import { anybody, type HostCaller, hostsOnly, operation } from '../operation.ts'

// What hosts call: the internal API. A host reaches its own things only.

const own = (caller: HostCaller, id: string): void => {
  if (caller.id !== id) throw new NotFound('host')
}

export const hostProtocol = [
  operation({
    method: 'POST',
    path: '/internal/v1/hosts/enrol',
    permission: anybody('the one-time token in the body is the credential'),
    summary: 'A machine becomes a host, with a key of its own',
    body: Enrolment,
    responses: { 200: Enrolled },
    attempts_per_min: 60,
    handle: async ({ body }) => {
      const host = await enrolHost(body)
      if (!host) throw new Unauthenticated('The token is unknown, used or has ended', 'invalid_token')
      return { host_id: host._id, jwks: await publicKeys() }
    },
  }),

  operation({
    method: 'POST',
    path: '/internal/v1/hosts/{id}/reports',
    permission: hostsOnly('a host tells of itself'),
    summary: 'What a host observes: its capacity and the state of its instances',
    params: byId,
    body: HostReport,
    responses: { 200: ReportAnswer },
    handle: async ({ caller, params, body }) => {
      own(caller, params.id)
      await observe(params.id, body)
      return { jwks: await publicKeys() }
    },
  }),

  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/instances/{instance_id}/config-vars',
    permission: hostsOnly('secrets go to the host that runs the instance, and nowhere else'),
    summary: 'The config vars of an instance on this host',
    params: z.strictObject({ id: Id, instance_id: Id }),
    responses: { 200: z.strictObject({ config_vars: z.record(z.string(), z.string()) }) },
    handle: async ({ caller, params }) => {
      own(caller, params.id)
      if (
        !(await Reservation.exists({ _id: params.instance_id, host_id: params.id }).setOptions(everyTenant))
      ) {
        throw new NotFound('instance')
      }
      const container = await Container.findById(params.instance_id).setOptions(everyTenant).lean()
      if (!container) throw new NotFound('instance')
      return { config_vars: openConfigVars(container) }
    },
  }),
]
