import { z } from 'zod'
import { deployServerResource } from '../../models/deploy/deploy-servers.ts'
import { serviceTemplates } from '../../models/deploy/templates/templates.ts'
import { mine } from '../../models/resources.ts'
import { byId } from '../fields.ts'
import { operation } from '../operation.ts'
import { path } from './deployments.ts'

const TemplateView = z
  .strictObject({
    type: z.string().describe('The `type` with which to create a service'),
    title: z.string(),
    description: z.string(),
    category: z.string(),
    documentation: z.url(),
    exposes: z
      .array(z.strictObject({ container: z.string(), port: z.int(), what: z.string() }))
      .describe('What clients reach: each gets a URL'),
    variables: z.array(z.string()).describe('Variables that `envs` may have; passwords are generated'),
    docker_compose: z.string(),
  })
  .meta({ id: 'ServiceTemplate' })

/** The one-click templates of services. */
export const serviceTemplateOperations = [
  operation({
    method: 'GET',
    path: `${path}/service-templates`,
    permission: 'deploy_servers:read',
    summary: 'List the templates of services',
    params: byId,
    responses: { 200: z.strictObject({ items: z.array(TemplateView), total: z.int() }) },
    handle: async ({ caller, params: { id } }) => {
      await mine(deployServerResource, caller, id)
      const items = serviceTemplates().map(({ text: docker_compose, ...template }) => ({
        ...template,
        docker_compose,
      }))
      return { items, total: items.length }
    },
  }),
]
