// Reports the sessions of opencode to the boss of Remuda. Written by 'remuda setup boss --agent opencode';
// 'remuda setup boss --remove' removes it. It changes no decision of opencode, and waits for nothing.
import { spawn } from "node:child_process"

const COMMAND = [] // from here
const MOST_WAITING = 500
const FORWARDED = new Set([
  "session.deleted",
  "session.error",
  "permission.asked",
  "permission.replied",
  "question.asked",
  "question.replied",
  "question.rejected",
])

export const RemudaBoss = async ({ directory }) => {
  if (process.env.REMUDA_SESSION) return {} // its keeper reports it
  const waiting = []
  const parents = new Map() // subagent → the session that started it
  const answers = new Map() // session → its last answer: id, text, and how it ended
  const failed = new Set()
  const status = new Map()
  let running = false

  // One process at a time, so that events keep their order.
  const next = () => {
    if (running || !waiting.length) return
    running = true
    let isOver = false
    const done = () => {
      if (isOver) return
      isOver = true
      running = false
      next()
    }
    try {
      const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "ignore", "ignore"] })
      child.on("error", done)
      child.on("close", done)
      child.stdin.on("error", () => {})
      child.stdin.end(waiting.shift())
    } catch {
      done()
    }
  }

  const root = (session) => {
    for (let depth = 0; depth < 16 && parents.has(session); depth++) session = parents.get(session)
    return session
  }

  const report = (name, session, properties) => {
    const payload = { hook_event_name: name, session_id: root(session), cwd: directory, properties }
    if (waiting.length >= MOST_WAITING) waiting.shift()
    waiting.push(JSON.stringify(payload))
    next()
  }

  const note = (type, properties) => {
    if (type === "session.created" || type === "session.updated") {
      if (properties.info?.parentID) parents.set(properties.info.id, properties.info.parentID)
    } else if (type === "message.updated" && properties.info?.role === "assistant") {
      const { id, sessionID, error, finish } = properties.info
      const known = answers.get(sessionID)
      answers.set(sessionID, { id, error, finish, text: known?.id === id ? known.text : "" })
    } else if (type === "message.part.updated" && properties.part?.type === "text") {
      const answer = answers.get(properties.part.sessionID)
      if (answer?.id === properties.part.messageID) answer.text = String(properties.part.text).slice(0, 16384)
    }
  }

  const rest = (session) => {
    const { text, error, finish } = answers.get(session) ?? {}
    if (root(session) !== session || (!answers.has(session) && failed.has(session))) return
    report("session.idle", session, { text, error, finish })
  }

  return {
    "chat.message": async (input, output) => {
      if (root(input.sessionID) !== input.sessionID) return
      answers.delete(input.sessionID)
      failed.delete(input.sessionID)
      const texts = output.parts.filter((part) => part.type === "text" && !part.synthetic)
      const prompt = texts.map((part) => part.text).join("\n").slice(0, 65536)
      report("chat.message", input.sessionID, { prompt, id: output.message?.id })
    },
    event: async ({ event }) => {
      const { type, properties = {} } = event
      const session = properties.sessionID
      note(type, properties)
      if (!session) return
      if (type === "session.error") failed.add(session)
      if (type === "session.idle") {
        rest(session)
      } else if (type === "session.status") {
        const known = status.get(session)
        status.set(session, properties.status?.type)
        const isNew = known !== properties.status?.type || properties.status?.type === "retry"
        if (isNew && properties.status?.type !== "idle") report(type, session, { status: properties.status })
      } else if (FORWARDED.has(type)) {
        report(type, session, properties)
      }
    },
  }
}
