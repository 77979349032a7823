import { z } from 'zod'

// What a host applies of VPCs, and what it says of them in its reports.

const Interface = z.object({ mac_address: z.string(), ip_address: z.string() })
const SubnetOnHost = z.object({
  id: z.string(),
  vpc_id: z.string(),
  tenant_id: z.string(),
  cidr: z.string(),
  gateway_ip: z.string(),
  nat: z.boolean(),
  vni: z.int(),
  peers: z.array(z.object({ address: z.string(), tunnel_key: z.string().nullable() })),
  dhcp: z
    .object({
      range: z.object({ start: z.string(), end: z.string() }).nullable(),
      lease_time_sec: z.int(),
      dns_servers: z.array(z.string()),
      domain_name: z.string(),
      static_leases: z.array(Interface),
    })
    .nullable(),
  hosts: z.array(Interface),
  names: z.array(z.object({ name: z.string(), ip_address: z.string() })),
})

const PathEnd = Interface.extend({ id: z.string(), subnet_id: z.string() })

/** What a host has found of a path. */
export const ObservedPath = z.strictObject({
  kind: z.literal('path'),
  id: z.string(),
  /** Whether its target takes connections. */
  state: z.enum(['reachable', 'unreachable']),
})
export type ObservedPath = z.infer<typeof ObservedPath>

/** A NIC that a running instance had lost, and that its host attached again. */
export const RestoredNic = z.strictObject({
  kind: z.literal('nic'),
  id: z.string(),
  state: z.literal('restored'),
  instance_id: z.string(),
  at: z.iso.datetime(),
})
export type RestoredNic = z.infer<typeof RestoredNic>

/** The complete VPC state of a host. The host removes everything else. */
export const HostNetworks = z.object({
  version: z.string(),
  /** All subnets of each VPC that has a member on this host. */
  subnets: z.array(SubnetOnHost),
  /** VPCs with members on hosts that are set to another tunnel than this one, and so do not reach it. */
  apart: z.array(z.string()),
  /** NICs of the instances on this host. */
  nics: z.array(
    Interface.extend({
      id: z.string(),
      instance_id: z.string(),
      vpc_id: z.string(),
      subnet_id: z.string(),
      default_route: z.boolean(),
    }),
  ),
  /** Of the instances on this host. */
  paths: z.array(
    z.object({
      id: z.string(),
      user: z.object({ nic_id: z.string(), ip_address: z.string() }),
      port: z.int(),
      near: PathEnd,
      far: PathEnd,
      target: z.object({ ip_address: z.string(), port: z.int() }),
    }),
  ),
})
export type HostNetworks = z.infer<typeof HostNetworks>
