import { z } from 'zod'
import { ToolCommand } from '../../lib/tool-protocol.ts'
import { commandOfProbe } from '../../models/tools/tool-probes.ts'
import { own } from '../compute/host-protocol.ts'
import { Id } from '../fields.ts'
import { hostsOnly, operation } from '../operation.ts'

/** The internal API for probes of tools. */
export const toolProbeProtocol = [
  operation({
    method: 'GET',
    path: '/internal/v1/hosts/{id}/tool-probes/{probe_id}',
    permission: hostsOnly('only the host of a probe’s microVM gets the command and its secrets'),
    summary: 'Get the command of a tool that is probed, with its secrets',
    params: z.strictObject({ id: Id, probe_id: Id }),
    responses: { 200: ToolCommand },
    handle: async ({ caller, params: { id, probe_id } }) => {
      own(caller, id)
      return commandOfProbe(id, probe_id)
    },
  }),
]
