import { z } from 'zod'
import { hostPattern, longestRegex } from '../../models/network/route-patterns.ts'
import { headerName, headerValue } from '../../models/network/header-rules.ts'
import { Id } from '../fields.ts'
import { IpAddress } from './fields.ts'

// The types of fields of load balancers and their routes.

export const PortNumber = z.int().min(1).max(65535)
export const Protocol = z
  .enum(['http', 'https', 'tcp', 'tls'])
  .describe('tls: the load balancer terminates TLS, and forwards TCP')

export const Listener = z.strictObject({
  port: PortNumber.describe('The port at the load balancer’s address in the VPC'),
  host_port: z
    .int()
    .min(80)
    .max(65535)
    // The ports of browsers and of ACME. The others below 1024 are for the host's own programs.
    .refine((port) => [80, 443].includes(port) || port >= 1024, 'must be 80, 443, or from 1024 on')
    .nullable()
    .default(null)
    .describe('80, 443, or 1024 and above. Default: the host picks a port and keeps it'),
  protocol: Protocol,
  certificate_ids: z
    .array(Id)
    .max(32)
    .default([])
    .describe('For https and tls. A client gets the certificate for its host name, or else the first'),
  redirect_to_https: z
    .boolean()
    .default(false)
    .describe('For http: whether every request is redirected to HTTPS'),
})

export const HealthCheck = z.strictObject({
  path: z
    .string()
    .max(1024)
    .regex(/^\/[!-~]*$/, 'must be a path, such as /health')
    .nullable()
    .default(null)
    .describe('Default: a TCP connection is enough'),
  interval_sec: z.int().min(1).max(300).default(5),
  timeout_sec: z.int().min(1).max(300).default(2),
  healthy_after: z.int().min(1).max(10).default(2),
  unhealthy_after: z.int().min(1).max(10).default(2),
  expect_status: z.int().min(200).max(599).nullable().default(null).describe('Default: any 2xx or 3xx'),
})

export const HostMatch = z
  .string()
  .max(253)
  .toLowerCase()
  .regex(hostPattern, 'must be a host name, or a wildcard such as *.example.com')

/** Its form depends on `path_match_type`, so the model checks it. */
export const PathMatch = z.string().min(1).max(1024)
export const PathMatchType = z
  .enum(['exact', 'prefix', 'regex'])
  .describe(
    `A prefix matches whole segments: /api matches /api/x, not /apix. A regex has at most ${longestRegex} characters, and must match the whole path`,
  )
export const Method = z.string().regex(/^[A-Z]{1,20}$/, 'must be an HTTP method, such as GET')
export const PrefixRewrite = z
  .string()
  .max(1024)
  .regex(/^\/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*$/, 'must be a path of a URL, such as /shop')

export const RedirectStatus = z.int().min(300).max(399)
/** Printable ASCII without spaces, quotes and backslashes; braces only for the two placeholders. */
export const RedirectUrl = z
  .string()
  .max(2048)
  .regex(
    /^(?:https?:\/\/(?:\{host\}|[A-Za-z0-9.-]{1,253})(?::\d{1,5}|\{https?_port\})?)?(?:\{path\}|\/(?:[!#$%&()*+,./0-9:;=?@A-Z_a-z~-]|\[|\]|\{host\}|\{path\})*)?$/,
    'must be a URL or a path, with {host}, {path}, {http_port} and {https_port}',
  )
  .min(1)

export const HeadersAdd = z
  .record(
    z.string().regex(headerName, 'must be a header name'),
    z.string().regex(headerValue, 'must be printable ASCII, without spaces at either end'),
  )
  .refine((headers) => Object.keys(headers).length <= 50, 'must have at most 50 headers')
export const HeadersRemove = z.array(z.string().regex(headerName, 'must be a header name')).max(50)

export const Seconds = z.int().min(1).max(86_400)
export const Weight = z.int().min(0).max(256)
export const AskedTarget = z.strictObject({
  address: IpAddress.nullable().default(null).describe('An address in the load balancer’s VPC'),
  nic_id: Id.nullable().default(null).describe('A NIC of an instance: the target follows the instance'),
  port: PortNumber.nullable().default(null).describe('Default: the route’s backend_port'),
  weight: Weight.default(100).describe('The share of requests, relative to the other targets’; 0: none'),
})
export const Health = z.enum(['healthy', 'unhealthy', 'unknown', 'draining'])
