import { Schema } from 'mongoose'
import type { ContainerSpec } from '../../drivers/containers.ts'
import { Problem } from '../../lib/problem.ts'
import type { Binding } from '../../lib/ports.ts'
import { defineMachine, type MachineDocument } from './machines.ts'
import { withKept } from './ports.ts'

/** A machine that runs the command of an OCI image. These fields are not in records of before microVMs had them. */
export interface MicrovmDocument
  extends MachineDocument,
    Partial<Pick<ContainerSpec, 'ports' | 'health_check'>> {
  /** What the published ports (`ports`, as asked for) have become. */
  bindings?: Binding[]
  health?: 'none' | 'starting' | 'healthy' | 'unhealthy'
}

const { Mixed } = Schema.Types
export const microvmKind = defineMachine<MicrovmDocument>('microvm', 'microVM', {
  fields: {
    ports: { type: [Mixed], default: [] },
    health_check: { type: Mixed, default: null },
    bindings: { type: [Mixed], default: [] },
    health: { type: String, default: 'none' },
  },
  specOf: ({ ports = [], bindings = [], health_check = null }) => ({
    ports: withKept(ports, bindings),
    health_check,
  }),
  /** What is published is reached by a NIC. */
  mayLoseNic({ nics, ports = [], bindings = [] }) {
    if (nics.length > 1 || ports.length + bindings.length === 0) return
    const detail = 'Its ports are reached by its only NIC: publish none, and restart it if it runs'
    throw new Problem(409, 'ports_need_nic', 'Its ports need the NIC', detail)
  },
})
