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
    description: 'Machine credentials: they belong to the tenant, and exchange their secret for tokens.',
    paths: ['/api-clients', '/oauth', '/.well-known'],
  },
  {
    name: 'Users and roles',
    description: 'Who may do what in the tenant, and what was done.',
    paths: ['/users', '/roles', '/audit-events'],
  },
  {
    name: 'Operations',
    description: 'What takes time: follow it until it ends, or cancel it.',
    paths: ['/operations'],
  },
  {
    name: 'Containers',
    description:
      'Containers on shared kernels: they start in a second. Also the logins at registries of private images.',
    paths: ['/containers'],
  },
  {
    name: 'MicroVMs',
    description: 'Container images with a kernel of their own, which can be suspended and forked.',
    paths: ['/microvms'],
  },
  { name: 'VMs', description: 'Machines with an operating system, a disk and SSH.', paths: ['/vms'] },
  {
    name: 'Disks',
    description: 'Disks outlive the instances to which they are attached. Snapshots restore into new disks.',
    paths: ['/disks'],
  },
  {
    name: 'Networks',
    description: 'VPCs are private address spaces; subnets are their parts, in which instances have NICs.',
    paths: ['/vpcs', '/subnets'],
  },
  {
    name: 'Load balancers',
    description:
      'HTTP, TCP and TLS listeners, whose routes lead to targets in a subnet; certificates by ACME.',
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
    description: 'Accounts at Git hosts, vendors of models and MCP servers. Their secrets are never shown.',
    paths: ['/connectors'],
  },
  {
    name: 'Tools',
    description: 'What agents and workflows may call: MCP servers, HTTP endpoints, OpenAPI documents.',
    paths: ['/tools'],
  },
  {
    name: 'Retrieval',
    description: 'Documents that are searched by meaning and by words.',
    paths: ['/rag'],
  },
  {
    name: 'AI workflows',
    description: 'Graphs of calls of models and tools: drafted, published, deployed, run and evaluated.',
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
