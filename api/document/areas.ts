// The areas of the document: the groups of the reference.

interface Area {
  name: string
  description: string
  /** What its paths begin with, after /api/v1. The longest that fits decides. */
  paths: string[]
}

export const areas: Area[] = [
  {
    name: 'Sign-in and account',
    description: 'Log in and out, and manage your own password, authenticator, sessions and browsers.',
    paths: ['/auth', '/account'],
  },
  {
    name: 'API clients',
    description:
      'Credentials of machines. An API client belongs to the tenant, and exchanges its secret for access tokens.',
    paths: ['/api-clients', '/oauth', '/.well-known'],
  },
  {
    name: 'Users and roles',
    description: 'Who may do what in the tenant, and the audit log of what was done.',
    paths: ['/users', '/roles', '/audit-events'],
  },
  {
    name: 'Operations',
    description: 'Work that takes time: follow an operation until it ends, or cancel it.',
    paths: ['/operations'],
  },
  {
    name: 'Containers',
    description:
      'Containers share their host’s kernel and start within a second. Credentials for registries of private images are here too.',
    paths: ['/containers'],
  },
  {
    name: 'MicroVMs',
    description:
      'MicroVMs run container images, each with a kernel of its own. They can be suspended and forked.',
    paths: ['/microvms'],
  },
  { name: 'VMs', description: 'VMs are machines with an operating system, a disk and SSH.', paths: ['/vms'] },
  {
    name: 'Disks',
    description: 'Disks outlive the instances to which they are attached. Snapshots restore into new disks.',
    paths: ['/disks'],
  },
  {
    name: 'Networks',
    description: 'VPCs are private networks. They are divided into subnets, in which instances have NICs.',
    paths: ['/vpcs', '/subnets'],
  },
  {
    name: 'Load balancers',
    description:
      'Listeners for HTTP, TCP and TLS, whose routes lead to targets in a VPC; and certificates, uploaded or issued by ACME.',
    paths: ['/load-balancers', '/certificates', '/ca-trusts'],
  },
  {
    name: 'Deploy servers',
    description: 'Machines of your own, on which the platform builds and runs applications.',
    paths: ['/deploy-servers'],
  },
  {
    name: 'Applications',
    description: 'What runs on a deploy server: releases, domains, tasks, volumes.',
    paths: [
      '/deploy-servers/{id}/applications',
      '/deploy-servers/{id}/artifacts',
      '/deploy-servers/{id}/builds',
      '/deploy-servers/{id}/deployments',
    ],
  },
  {
    name: 'Databases',
    description: 'Managed databases of a deploy server, with backups and recovery.',
    paths: [
      '/deploy-servers/{id}/databases',
      '/deploy-servers/{id}/kept-volumes',
      '/deploy-servers/{id}/backup-executions',
      '/backup-targets',
    ],
  },
  {
    name: 'Services',
    description: 'Compose files and one-click templates on a deploy server.',
    paths: ['/deploy-servers/{id}/services', '/deploy-servers/{id}/service-templates'],
  },
  {
    name: 'Events',
    description: 'What happens on a deploy server, sent by webhook or mail.',
    paths: ['/deploy-servers/{id}/event-subscriptions'],
  },
  {
    name: 'Connectors',
    description: 'Accounts at Git hosts, model providers and MCP servers. Their secrets are never shown.',
    paths: ['/connectors'],
  },
  {
    name: 'Tools',
    description: 'What agents and workflows may call: MCP servers, HTTP endpoints, OpenAPI documents.',
    paths: ['/tools'],
  },
  {
    name: 'Retrieval',
    description: 'Collections of documents that can be searched by meaning and by words.',
    paths: ['/rag'],
  },
  {
    name: 'AI workflows',
    description: 'Graphs of model and tool calls that you draft, publish, deploy, run and evaluate.',
    paths: ['/workflows', '/hooks'],
  },
  {
    name: 'Limits and usage',
    description: 'What the tenant may use, and what it has used.',
    paths: ['/limits', '/llm-usage'],
  },
  {
    name: 'Platform',
    description: 'For operators: tenants, hosts, keys and mail. No API client can call these.',
    paths: ['/platform', '/mailsvc'],
  },
]

/** The area of a path. Throws if it has none. */
export function areaOf(path: string): string {
  const own = path.replace(/^\/api\/v1/, '')
  const fits = areas.flatMap(({ name, paths }) =>
    paths.filter((start) => own === start || own.startsWith(`${start}/`)).map((start) => ({ name, start })),
  )
  const [best] = fits.toSorted((a, b) => b.start.length - a.start.length)
  if (!best) throw new Error(`${path} is in no area of the document`)
  return best.name
}
