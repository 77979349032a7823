// The dashboard of one deploy server. It holds a root login, and uses nothing but the API below the deploy server.

const id = location.pathname.split('/').at(-1)
const api = new URL(`../api/v1/deploy-servers/${id}`, location.href).href
const refreshEveryMs = 2_000

const $ = (name) => document.getElementById(name)

// The login ends with the tab. It is never in an address, nor in a cookie that other pages would send.
const kept = `keelson deploy ${id}`
let token = sessionStorage.getItem(kept)

class LoggedOut extends Error {}

/** Sends a request. Throws LoggedOut, or an error with what the API says. */
async function ask(method, path, body, signal) {
  const answer = await fetch(api + path, {
    method,
    signal,
    cache: 'no-store',
    credentials: 'omit',
    headers: {
      ...(token ? { authorization: `Bearer ${token}` } : {}),
      ...(body ? { 'content-type': 'application/json' } : {}),
    },
    ...(body ? { body: JSON.stringify(body) } : {}),
  })
  if (answer.ok) return answer
  const { detail, title } = await answer.json().catch(() => ({}))
  if (answer.status === 401 && token) throw new LoggedOut()
  throw new Error(detail ?? title ?? `The API answered ${answer.status}`)
}

const get = async (path) => (await ask('GET', path)).json()

/** Runs what a person asked for, and shows why it fails. */
function attempt(work, complaint = $('notice')) {
  complaint.textContent = ''
  work().catch((error) => {
    if (error instanceof LoggedOut) logOut('The login has ended')
    else complaint.textContent = error.message
  })
}

// Logging in and out

function show() {
  $('login').hidden = Boolean(token)
  $('board').hidden = !token
  $('logout').hidden = !token
  if (!token) $('name').focus()
}

function logOut(why = '') {
  token = null
  sessionStorage.removeItem(kept)
  for (const dialog of document.querySelectorAll('dialog[open]')) dialog.close()
  for (const list of ['applications', 'deployments', 'databases', 'services', 'machines'])
    $(list).replaceChildren()
  $('title').textContent = 'Deploy server'
  $('state').textContent = ''
  show()
  $('login-error').textContent = why
}

$('login').addEventListener('submit', (event) => {
  event.preventDefault()
  attempt(async () => {
    const said = { login: $('name').value.trim(), password: $('password').value.trim() }
    const { token: opened } = await (await ask('POST', '/login', said)).json()
    token = opened
    sessionStorage.setItem(kept, token)
    $('login').reset()
    show()
    await refresh()
    $('title').focus()
  }, $('login-error'))
})

$('logout').addEventListener('click', () =>
  attempt(async () => {
    await ask('POST', '/logout')
    logOut()
  }),
)

// What is there

const moods = {
  good: ['running', 'succeeded', 'ready', 'registered'],
  bad: ['failed', 'unhealthy', 'error', 'running:degraded'],
  busy: ['queued', 'deploying', 'running:updating', 'deleting', 'creating', 'updating', 'joining'],
}
const moodOf = (status) => Object.keys(moods).find((mood) => moods[mood].includes(status)) ?? 'idle'

/** Changes a text only if it differs: a screen reader says each change. */
function say(element, text) {
  if (element.textContent !== text) element.textContent = text
}

function sayStatus(badge, status) {
  say(badge, status.replace(':', ', '))
  badge.dataset.mood = moodOf(status)
}

/** The item that an element of a list shows. */
const itemOf = new WeakMap()

/** Shows the items in a list. Elements stay, so that the focus does; `write` gets the parts of each by their names. */
function fill(list, template, items, write) {
  const before = new Map([...list.children].map((element) => [element.dataset.id, element]))
  const elements = items.map((item) => {
    const element = before.get(item.id) ?? $(template).content.firstElementChild.cloneNode(true)
    element.dataset.id = item.id
    itemOf.set(element, item)
    write(item, (name) => element.querySelector(`[data-is="${name}"], [data-do="${name}"]`))
    return element
  })
  for (const [index, element] of elements.entries())
    if (list.children[index] !== element) list.insertBefore(element, list.children[index] ?? null)
  while (list.children.length > elements.length) list.lastElementChild.remove()
}

/** What the buttons in the lists do. */
const acts = {
  deploy: askToDeploy,
  restart: (app) => attempt(() => order(app, 'restart')),
  stop: askToStop,
  log: openLog,
}
for (const list of [$('applications'), $('deployments')])
  list.addEventListener('click', ({ target }) => {
    const button = target.closest('[data-do]')
    if (button) acts[button.dataset.do](itemOf.get(button.closest('li')))
  })

function showApplication(app, part) {
  say(part('name'), app.name)
  sayStatus(part('status'), app.status)
  const link = part('url')
  link.hidden = !/^https?:/.test(app.url ?? '')
  if (!link.hidden) {
    say(link, app.url.replace(/^https?:\/\//, ''))
    link.href = app.url
  }
  const replicas = app.replicas === 1 ? '1 replica' : `${app.replicas} replicas`
  say(
    part('about'),
    `${app.image}:${app.tag} · ${replicas} · ${app.cpu_cores} cores, ${app.memory_mib} MiB each`,
  )
  part('deploy').setAttribute('aria-label', `Deploy ${app.name}`)
  for (const verb of ['restart', 'stop']) {
    part(verb).setAttribute('aria-label', `${verb === 'stop' ? 'Stop' : 'Restart'} ${app.name}`)
    part(verb).disabled = app.deployment_id === null
  }
}

const when = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })

function showDeployment(deployment, part) {
  const { app, number, status, status_reason, kind, image, tag, commit, message, created_at } = deployment
  say(part('name'), `${app} #${number}`)
  sayStatus(part('status'), status)
  const about = [kind, `${image}:${tag}`, when.format(new Date(created_at)), commit, message]
  say(part('about'), about.filter(Boolean).join(' · '))
  say(part('reason'), status === 'failed' ? status_reason : '')
  part('log').setAttribute('aria-label', `Log of ${app} #${number}`)
}

function showMachine({ name, instance_type, disk_gib, registered }, part) {
  say(part('name'), name === 'cp' ? 'Control plane' : `Worker ${name}`)
  sayStatus(part('status'), registered ? 'registered' : 'joining')
  say(part('about'), `${instance_type} · disk of ${disk_gib} GiB`)
}

const onWorker = (worker) => (worker ? ` · worker ${worker}` : '')

function showDatabase({ name, status, type, version, memory_mib, worker }, part) {
  say(part('name'), name)
  sayStatus(part('status'), status)
  say(part('about'), `${type} ${version} · ${memory_mib} MiB${onWorker(worker)}`)
}

function showService({ name, status, type, containers, worker }, part) {
  say(part('name'), name)
  sayStatus(part('status'), status)
  const count = containers.length === 1 ? '1 container' : `${containers.length} containers`
  say(part('about'), `${type ?? 'compose'} · ${count}${onWorker(worker)}`)
}

async function refresh() {
  const [server, apps, deployments, databases, services] = await Promise.all([
    get(''),
    get('/applications?limit=100&sort_by=name&order=asc'),
    get('/deployments?limit=20'),
    get('/databases?limit=100&sort_by=name&order=asc'),
    get('/services?limit=100&sort_by=name&order=asc'),
  ])
  if (!token) return
  say($('title'), server.name)
  document.title = `${server.name} · Deploy server`
  say($('state'), server.init_step ? `${server.status}: ${server.init_step}` : server.status)
  fill($('applications'), 'application', apps.items, showApplication)
  fill($('deployments'), 'deployment', deployments.items, showDeployment)
  fill($('databases'), 'thing', databases.items, showDatabase)
  fill($('services'), 'thing', services.items, showService)
  const machines = [...server.workers, ...(server.control_plane ? [server.control_plane] : [])]
  fill(
    $('machines'),
    'thing',
    machines.map((machine) => ({ id: machine.name, ...machine })),
    showMachine,
  )
  $('no-applications').hidden = apps.total > 0
  $('no-deployments').hidden = deployments.total > 0
  $('no-databases').hidden = databases.total > 0
  $('no-services').hidden = services.total > 0
  const followed = deployments.items.find((deployment) => deployment.id === shown)
  if (followed) showProgress(followed)
}

let away = false
async function keepFresh() {
  if (token && !document.hidden) {
    try {
      await refresh()
      if (away) say($('notice'), '')
      away = false
    } catch (error) {
      if (error instanceof LoggedOut) logOut('The login has ended')
      else {
        away = true
        say($('notice'), 'The API does not answer. Trying again …')
      }
    }
  }
  setTimeout(keepFresh, refreshEveryMs)
}

// Deploying, restarting and stopping

let chosen = null

function askToDeploy(app) {
  chosen = app
  say($('deploy-title'), `Deploy ${app.name}`)
  $('tag').value = app.tag
  $('message').value = ''
  $('deploy-error').textContent = ''
  $('deploy-dialog').showModal()
  $('tag').select()
}

$('deploy-form').addEventListener('submit', (event) => {
  event.preventDefault()
  attempt(async () => {
    const body = { tag: $('tag').value.trim(), message: $('message').value.trim() || null }
    await order(chosen, 'deploy', body)
  }, $('deploy-error'))
})

function askToStop(app) {
  chosen = app
  say($('stop-title'), `Stop ${app.name}?`)
  $('stop-dialog').showModal()
}

$('stop-form').addEventListener('submit', (event) => {
  event.preventDefault()
  $('stop-dialog').close()
  attempt(() => order(chosen, 'stop'))
})

/** Begins a deployment of an application, and shows its log. */
async function order(app, verb, body) {
  await ask('POST', `/applications/${app.id}/${verb}`, body)
  $('deploy-dialog').close()
  const { items } = await get(`/deployments?limit=1&sort_by=number&app_id=${app.id}`)
  if (items[0]) openLog(items[0])
  await refresh()
}

for (const button of document.querySelectorAll('[data-close]'))
  button.addEventListener('click', () => button.closest('dialog').close())

// The log of a deployment

let shown = null
let reading = new AbortController()

function openLog(deployment) {
  const { id: opened, app, number } = deployment
  reading.abort()
  reading = new AbortController()
  shown = opened
  say($('log-title'), `${app} #${number}`)
  showProgress(deployment)
  $('log').replaceChildren()
  if (!$('log-dialog').open) $('log-dialog').showModal()
  attempt(() => follow(opened, reading.signal), $('log-reason'))
}

$('log-dialog').addEventListener('close', () => {
  reading.abort()
  shown = null
})
$('log-cancel').addEventListener('click', () =>
  attempt(() => ask('POST', `/deployments/${shown}/cancel`), $('log-reason')),
)

function showProgress({ status, status_reason, operation_id }) {
  sayStatus($('log-status'), status)
  say($('log-reason'), status === 'failed' ? status_reason : '')
  $('log-cancel').hidden = operation_id === null
}

/** Shows the lines as they come until the deployment has ended, also when the connection breaks. */
async function follow(deployment, signal) {
  for (;;) {
    const isWhole = await showLines(deployment, signal)
    if (signal.aborted) return
    const now = await get(`/deployments/${deployment}`)
    if (signal.aborted) return
    showProgress(now)
    if (isWhole && now.operation_id === null) return
  }
}

/** Returns whether the log was read to its end. */
async function showLines(deployment, signal) {
  try {
    const answer = await ask('GET', `/deployments/${deployment}/log?follow=true`, undefined, signal)
    $('log').replaceChildren()
    for await (const { time, line } of events(answer.body)) addLine(time, line)
    return true
  } catch (error) {
    if (error instanceof LoggedOut) throw error
    if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, refreshEveryMs))
    return false
  }
}

/** The data of server-sent events. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    text += value
    const parts = text.split('\n\n')
    text = parts.pop()
    for (const part of parts) {
      const data = part.split('\n').find((line) => line.startsWith('data: '))
      if (data) yield JSON.parse(data.slice('data: '.length))
    }
  }
}

const clock = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' })

function addLine(time, line) {
  const log = $('log')
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40
  const stamp = document.createElement('time')
  stamp.dateTime = time
  stamp.textContent = clock.format(new Date(time))
  const row = document.createElement('p')
  row.append(stamp, line)
  log.append(row)
  if (isAtEnd) log.scrollTop = log.scrollHeight
}

show()
void keepFresh()
